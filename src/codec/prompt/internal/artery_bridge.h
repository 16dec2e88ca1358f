#pragma once
// C interface of the Rust bridge (rust/src/lib.rs, which must agree field by field). Owns compiled
// templates; any thread may render the same one. Never aborts: a panic comes back as status
// kFailed.

#include <cstddef>
#include <cstdint>

extern "C" {

// UTF-8, not terminated; size 0 allows a null pointer.
struct ArteryBytes {
  const char* data;
  std::size_t size;
};

struct ArteryRange {
  std::size_t begin, end;
};

struct ArteryTemplateInput {
  const ArteryBytes* messages;  // one JSON object each
  std::size_t message_count;
  ArteryBytes tools, documents, kwargs;  // JSON, or empty
  ArteryBytes now;                       // "YYYY-MM-DD hh:mm:ss"
  bool add_generation_prompt;
  bool continue_final_message;
  bool as_sent;  // as ChatInput::as_sent
};

enum ArteryTemplateStatus : std::uint32_t {
  kArteryOk = 0,
  kArteryRaised = 1,  // text is what the template gave raise_exception
  kArteryFailed = 2,  // text is the reason; line is 0 when unknown
};

struct ArteryTemplateOutput {
  ArteryTemplateStatus status;
  std::uint32_t line;
  ArteryBytes text;
  const ArteryRange* literal;  // bytes of text, ascending, disjoint
  std::size_t literal_count;
};

struct ArteryTemplate;

// Null with `output` filled when the source does not compile. `control`: texts of the control
// tokens. `output` is written in every case and freed with artery_template_output_free.
ArteryTemplate* artery_template_compile(
    ArteryBytes source,
    ArteryBytes bos,
    ArteryBytes eos,
    const ArteryBytes* control,
    std::size_t control_count,
    ArteryTemplateOutput* output
);
void artery_template_render(
    const ArteryTemplate* compiled, const ArteryTemplateInput* input, ArteryTemplateOutput* output
);
void artery_template_free(ArteryTemplate* compiled);
void artery_template_output_free(ArteryTemplateOutput* output);

}  // extern "C"
