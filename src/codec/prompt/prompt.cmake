# Chat templates: included by the codec room.
include(${CMAKE_SOURCE_DIR}/cmake/rust.cmake)

set(CODEC_PROMPT_SOURCES prompt/builtin_forms.cc prompt/chat_template.cc prompt/form_shape.cc)
set(CODEC_PROMPT_LINK Boost::json)
set(CODEC_PROMPT_TESTS prompt/builtin_forms_test.cc)
if(ARTERY_HAS_RUST)
  list(APPEND CODEC_PROMPT_SOURCES prompt/jinja_template.cc)
  list(APPEND CODEC_PROMPT_LINK artery_bridge)
  list(APPEND CODEC_PROMPT_TESTS prompt/jinja_template_test.cc)
  set_source_files_properties(prompt/chat_template.cc PROPERTIES COMPILE_DEFINITIONS ARTERY_HAS_RUST=1)
endif()
