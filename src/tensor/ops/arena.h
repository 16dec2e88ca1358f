#pragma once
// Memory of one forward: a bump allocator that keeps what it grew to, so a warmed-up step allocates
// nothing. And a buffer that grows and forgets. One thread; contents start undefined; never
// returns memory to the system before it is destroyed.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace artery::tensor::ops {

constexpr std::size_t kAlignment = 64;

struct AlignedFree {
  void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{kAlignment}); }
};
using AlignedBytes = std::unique_ptr<std::byte, AlignedFree>;

inline AlignedBytes aligned_bytes(std::size_t bytes) {
  return AlignedBytes(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{kAlignment})));
}

class Arena {
 public:
  void* alloc(std::size_t bytes) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (chunks_.empty() || bytes > chunks_.back().bytes - used_) {
      const std::size_t size = std::max(bytes, std::max(total_, kFirstChunk));
      chunks_.push_back({aligned_bytes(size), size});
      total_ += size;
      used_ = 0;
    }
    void* p = chunks_.back().data.get() + used_;
    used_ += bytes;
    return p;
  }

  // Frees everything handed out. Several chunks become one of their total size.
  void reset() {
    used_ = 0;
    if (chunks_.size() <= 1) return;
    chunks_.clear();
    chunks_.push_back({aligned_bytes(total_), total_});
  }

 private:
  static constexpr std::size_t kFirstChunk = std::size_t{1} << 20;
  struct Chunk {
    AlignedBytes data;
    std::size_t bytes = 0;
  };
  std::vector<Chunk> chunks_;
  std::size_t total_ = 0;  // of all chunks
  std::size_t used_ = 0;   // of the last chunk
};

// Scratch of `T` that grows to the largest size asked for.
template <typename T>
class Scratch {
 public:
  T* get(std::size_t count) {
    if (count > count_) {
      data_ = aligned_bytes(count * sizeof(T));
      count_ = count;
    }
    return data();
  }
  T* data() const { return reinterpret_cast<T*>(data_.get()); }

 private:
  AlignedBytes data_;
  std::size_t count_ = 0;
};

}  // namespace artery::tensor::ops
