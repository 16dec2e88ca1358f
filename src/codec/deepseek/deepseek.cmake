# DeepSeek's encodings and output: included by the codec room. Sources and tests (of codec_api_test),
# one a line.
set(CODEC_DEEPSEEK_SOURCES
  deepseek/encode.cc
  deepseek/output_actions.cc
  deepseek/output_grammar.cc
  deepseek/output_machine.cc
  deepseek/output_patterns.cc
  deepseek/output_processor.cc
  deepseek/output_reader.cc
  deepseek/prompt_texts.cc
  deepseek/prompt_writer.cc
  deepseek/render.cc
  deepseek/render_calls.cc
  deepseek/tag_head.cc
  deepseek/token_runs.cc
)
set(CODEC_DEEPSEEK_TESTS
  deepseek/render_test.cc
  deepseek/output_processor_test.cc
)
