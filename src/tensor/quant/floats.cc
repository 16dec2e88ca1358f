// Plain float types, where a block is one value, and 8-bit floats with a scale.

#include "tensor/quant/blocks.h"

namespace artery::tensor::quant {
namespace {

// In runs of a fixed length first: compilers vectorize those even at -O2.
template <float (*kConvert)(std::uint16_t)>
inline void convert(const std::uint8_t* __restrict in, std::size_t count, float* __restrict out) {
  constexpr std::size_t kRun = 32;
  for (; count >= kRun; count -= kRun, in += 2 * kRun, out += kRun) {
    for (std::size_t i = 0; i < kRun; ++i) out[i] = kConvert(load_u16(in + 2 * i));
  }
  for (std::size_t i = 0; i < count; ++i) out[i] = kConvert(load_u16(in + 2 * i));
}

}  // namespace

void decode_f32(const std::uint8_t* in, std::size_t blocks, float* out) {
  if (blocks > 0) std::memcpy(out, in, blocks * sizeof(float));
}

void decode_f16(const std::uint8_t* in, std::size_t blocks, float* out) {
  convert<f16_to_f32>(in, blocks, out);
}

void decode_bf16(const std::uint8_t* in, std::size_t blocks, float* out) {
  convert<bf16_to_f32>(in, blocks, out);
}

//   F8_E4M3   q[128] (E4M3), d (float32)     128 values, q * d
void decode_f8_e4m3(const std::uint8_t* in, std::size_t blocks, float* out) {
  constexpr std::size_t kValues = 128;
  for (std::size_t b = 0; b < blocks; ++b, in += kValues + sizeof(float), out += kValues) {
    float scale;
    std::memcpy(&scale, in + kValues, sizeof scale);
    for (std::size_t i = 0; i < kValues; ++i) out[i] = f8_e4m3_to_f32(in[i]) * scale;
  }
}

}  // namespace artery::tensor::quant
