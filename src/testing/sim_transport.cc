#include "testing/sim_transport.h"

namespace artery::testing {

class SimTransport::End final : public Channel {
 public:
  End(std::shared_ptr<Pipe> out, std::shared_ptr<Pipe> in, std::size_t frames_max)
      : out_(std::move(out)), in_(std::move(in)), frames_max_(frames_max) {}
  ~End() override { out_->cut = in_->cut = true; }

  Result<void> send(Frame frame) override {
    if (out_->cut) return fail(Code::kUnavailable, "the peer is gone");
    if (out_->frames.size() >= frames_max_) {
      return fail(Code::kOverloaded, "{} frames are under way already", frames_max_);
    }
    out_->frames.push_back(std::move(frame));
    return {};
  }
  void on_receive(std::function<void(Frame)> handler) override {
    in_->handler = std::move(handler);
  }

 private:
  std::shared_ptr<Pipe> out_, in_;
  const std::size_t frames_max_;
};

void SimTransport::listen(
    const std::string& address, std::function<void(std::unique_ptr<Channel>)> accept
) {
  listeners_[address] = std::move(accept);
}

Result<std::unique_ptr<Channel>> SimTransport::connect(const std::string& address) {
  const auto it = listeners_.find(address);
  if (it == listeners_.end()) return fail(Code::kUnavailable, "nobody listens at {}", address);
  auto there = std::make_shared<Pipe>();
  auto back = std::make_shared<Pipe>();
  pipes_.push_back(there);
  pipes_.push_back(back);
  it->second(std::make_unique<End>(back, there, frames_max_));
  return std::unique_ptr<Channel>(std::make_unique<End>(there, back, frames_max_));
}

bool SimTransport::deliver_one() {
  std::vector<std::shared_ptr<Pipe>> ready;
  for (const auto& pipe : pipes_) {
    if (pipe->cut) pipe->frames.clear();
    if (!pipe->frames.empty() && pipe->handler) ready.push_back(pipe);
  }
  if (ready.empty()) return false;
  const auto& pipe = ready[random_.next() % ready.size()];
  Frame frame = std::move(pipe->frames.front());
  pipe->frames.pop_front();
  pipe->handler(std::move(frame));
  return true;
}

void SimTransport::cut_all() {
  for (const auto& pipe : pipes_) {
    pipe->cut = true;
    pipe->frames.clear();
  }
}

}  // namespace artery::testing
