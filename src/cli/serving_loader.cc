#include "cli/serving_loader.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <set>
#include <utility>

#include "base/log.h"
#include "cli/progress.h"

namespace artery::cli {
namespace {

// Null without a template: then there is no chat.
std::shared_ptr<const codec::OutputFormat> make_output_format(
    const codec::ParserChoice& choice, const LoadedModel& loaded
) {
  if (loaded.chat_template == nullptr) return nullptr;
  const std::vector<std::string> texts = template_tokens(*loaded.tokenizer).control;
  const std::set<std::string, std::less<>> control(texts.begin(), texts.end());
  const auto is_control = [control](std::string_view text) { return control.contains(text); };
  auto format = codec::OutputFormat::make(choice, loaded.chat_template->source(), is_control);
  if (!format) return nullptr;  // checked at start
  log_info(
      "tool-call-parser={} reasoning-parser={}", (*format)->tool_call(), (*format)->reasoning()
  );
  return format.take();
}

}  // namespace

ServingLoader::ServingLoader(
    ServingWish wish, codec::ParserChoice parsers, std::string name, LoadTarget target
)
    : target_(std::move(target)), parsers_(std::move(parsers)), done_fd_(eventfd(0, EFD_CLOEXEC)) {
  thread_ = std::thread([this, wish = std::move(wish), model_name = std::move(name)] {
    run(wish, model_name);
  });
}

ServingLoader::~ServingLoader() {
  if (thread_.joinable()) thread_.join();
  close(done_fd_);
}

Result<LoadedModel>& ServingLoader::result() {
  if (thread_.joinable()) thread_.join();
  return result_;
}

void ServingLoader::run(const ServingWish& wish, const std::string& name) {
  try {
    Progress progress("loading " + name);
    const auto on_progress = [&](std::uint64_t done, std::uint64_t total) {
      progress.update(done, total);
      if (total > 0 && target_.on_progress) {
        target_.on_progress(static_cast<double>(done) / static_cast<double>(total));
      }
    };
    result_ = load_serving(wish, on_progress, target_.observer, system_clock());
  } catch (const std::bad_alloc&) {
    result_ = fail(Code::kOutOfMemory, "out of memory while loading {}", wish.model_path);
  } catch (const std::exception& error) {
    result_ = fail(Code::kInternal, "while loading {}: {}", wish.model_path, error.what());
  }
  if (result_) {
    target_.attach({
        result_->engine,
        result_->tokenizer,
        result_->chat_template,
        result_->chat_template_error,
        name,
        result_->fingerprint,
        make_output_format(parsers_, *result_),
        result_->deepseek,
    });
  }
  const std::uint64_t one = 1;
  if (write(done_fd_, &one, sizeof one) != sizeof one) std::abort();
}

}  // namespace artery::cli
