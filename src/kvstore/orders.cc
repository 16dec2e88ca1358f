#include "kvstore/orders.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "kvstore/flat_json.h"

namespace artery::kvstore {
namespace {

constexpr std::size_t kFileBytesMax = 16 << 10;
constexpr std::size_t kTenantBytesMax = 1024;
constexpr std::size_t kOrdersMax = 64;  // a look
constexpr double kCarrySeconds = 3600;  // that a verb waits for what the server has begun
constexpr std::string_view kAsk = ".ask", kDone = ".done";

bool is_order_name(std::string_view name, std::string_view end) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return name.size() == 16 + end.size() && name.ends_with(end) &&
         name.substr(0, 16).find_first_not_of(kDigits) == name.npos;
}

std::string_view verb_name(Order::Verb verb) {
  return verb == Order::Verb::kCollect ? "collect" : "drop-tenant";
}

// Of one machine's clock, which may have been set meanwhile.
bool is_recent(std::int64_t written_s, std::int64_t now_s) {
  return written_s >= now_s - kOrderSeconds && written_s <= now_s + kOrderSeconds;
}

// The last lines of a file may be ends of lines; nothing else.
std::optional<FlatJson> parse_line(std::string_view text) {
  const std::size_t last = text.find_last_not_of('\n');
  return last == text.npos ? std::nullopt : FlatJson::parse(text.substr(0, last + 1));
}

tl::unexpected<Error> not_carried_out(const std::string& folder, bool is_late, double waited_s) {
  if (!is_late) {
    return fail(Code::kCancelled, "{}: the order was withdrawn, nothing was done", folder);
  }
  return fail(
      Code::kUnavailable,
      "{}: the server that has it open did not take the order in {:.0f} s; it was withdrawn; try "
      "again, or stop the server first",
      folder,
      waited_s
  );
}

}  // namespace

std::string order_line(const Order& order, std::int64_t now_s) {
  FlatJson object;
  object.add("order", std::string(verb_name(order.verb))).add("written_s", now_s);
  if (order.verb == Order::Verb::kDropTenant) object.add("tenant", order.tenant);
  return object.line() + "\n";
}

std::optional<Order> parse_order(std::string_view text, std::int64_t& written_s) {
  const std::optional<FlatJson> object = parse_line(text);
  if (!object) return std::nullopt;
  const std::string* verb = object->text("order");
  const std::string* tenant = object->text("tenant");
  const std::int64_t* written = object->number("written_s");
  if (verb == nullptr || written == nullptr) return std::nullopt;
  written_s = *written;
  if (*verb == verb_name(Order::Verb::kCollect) && tenant == nullptr) return Order{};
  if (*verb != verb_name(Order::Verb::kDropTenant) || tenant == nullptr ||
      tenant->size() > kTenantBytesMax)
    return std::nullopt;
  return Order{Order::Verb::kDropTenant, *tenant};
}

std::string answer_line(const Result<std::int64_t>& answer, std::int64_t now_s) {
  FlatJson object;
  object.add("written_s", now_s);
  if (answer)
    object.add("bytes_freed", *answer);
  else
    object.add("error", answer.error().message);
  return object.line() + "\n";
}

std::optional<Result<std::int64_t>> parse_answer(std::string_view text, std::int64_t& written_s) {
  const std::optional<FlatJson> object = parse_line(text);
  if (!object) return std::nullopt;
  const std::int64_t* written = object->number("written_s");
  const std::int64_t* freed = object->number("bytes_freed");
  const std::string* error = object->text("error");
  if (written == nullptr || (freed == nullptr) == (error == nullptr)) return std::nullopt;
  written_s = *written;
  if (freed != nullptr) return Result<std::int64_t>(*freed);
  return Result<std::int64_t>(fail(Code::kIo, "{}", *error));
}

OrderBox::OrderBox(std::string folder, FileSystem& files)
    : folder_(std::move(folder) + "/orders/"), files_(&files) {}

void OrderBox::poll(
    std::int64_t now_s, const std::function<Result<std::int64_t>(const Order&)>& carry_out
) {
  const auto names = files_->list(folder_.substr(0, folder_.size() - 1));
  if (!names) return;  // nobody has ever asked, or nobody can
  std::size_t carried = 0;
  for (const std::string& name : *names) {
    if (is_order_name(name, kAsk)) {
      if (carried++ < kOrdersMax) answer(name, now_s, carry_out);
    } else if (is_order_name(name, kDone)) {
      // An answer that nobody fetched.
      std::int64_t written_s = 0;
      const auto text = files_->read(folder_ + name, kFileBytesMax);
      const bool fresh = text && parse_answer(*text, written_s) && is_recent(written_s, now_s);
      if (!fresh) (void)files_->remove_file(folder_ + name);
    }
  }
}

void OrderBox::answer(
    const std::string& name,
    std::int64_t now_s,
    const std::function<Result<std::int64_t>(const Order&)>& carry_out
) {
  const std::string path = folder_ + name;
  const auto text = files_->read(path, kFileBytesMax);
  if (!text && text.error().code == Code::kNotFound) return;  // withdrawn
  std::int64_t written_s = 0;
  const std::optional<Order> order = text ? parse_order(*text, written_s) : std::nullopt;
  Result<std::int64_t> result = fail(Code::kInvalidArgument, "{}: not an order", path);
  if (order) {
    if (!is_recent(written_s, now_s)) {
      log_warn("{}: an order of another time, not carried out", path);
      (void)files_->remove_file(path);
      return;
    }
    // Whoever removes it has it: it may be withdrawn at this moment.
    const Result<> taken = files_->remove_file(path);
    if (!taken && taken.error().code == Code::kNotFound) return;
    if (!taken) {
      log_warn("an order cannot be taken: {}", taken.error().message);
      return;
    }
    log_info("order={} tenant={}", verb_name(order->verb), order->tenant);
    result = carry_out(*order);
  }
  if (!result) log_warn("{}", result.error().message);
  const std::string done = path.substr(0, path.size() - kAsk.size()) + std::string(kDone);
  const Result<> answered = files_->replace(done, answer_line(result, now_s));
  if (!answered) log_warn("an order cannot be answered: {}", answered.error().message);
  if (!order) (void)files_->remove_file(path);
}

OrderDesk::OrderDesk(
    std::string folder,
    FileSystem& files,
    const Clock& clock,
    std::function<Result<std::int64_t>(const Order&)> carry_out
)
    : box_(std::move(folder), files),
      clock_(&clock),
      carry_out_(std::move(carry_out)),
      thread_([this] { main(); }) {}

OrderDesk::~OrderDesk() {
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void OrderDesk::main() {
  while (true) {
    box_.poll(clock_->unix_ms() / 1000, carry_out_);
    MutexLock lock(mutex_);
    if (!is_stopping_) stopped_.wait_for(mutex_, std::chrono::seconds(1));
    if (is_stopping_) return;
  }
}

Result<std::int64_t> ask(
    const std::string& folder,
    const Order& order,
    FileSystem& files,
    const Clock& clock,
    const std::function<bool(double waited_s)>& wait
) {
  const std::string base = fmt::format("{}/orders/{:016x}", folder, system_random().next());
  const std::string asked = base + std::string(kAsk), done = base + std::string(kDone);
  TRY(files.replace(asked, order_line(order, clock.unix_ms() / 1000)));
  const double begin_s = clock.seconds();
  double limit_s = kOrderSeconds;
  while (true) {
    const auto text = files.read(done, kFileBytesMax);
    std::int64_t written_s = 0;
    if (text) {
      (void)files.remove_file(done);
      if (auto answer = parse_answer(*text, written_s)) return *std::move(answer);
      return fail(Code::kIo, "{}: not an answer", done);
    }
    const double waited_s = clock.seconds() - begin_s;
    const bool goes_on = wait(waited_s);
    if (goes_on && waited_s <= limit_s) continue;
    const Result<> withdrawn = files.remove_file(asked);
    if (withdrawn) return not_carried_out(folder, goes_on, waited_s);
    // The server has it. What takes long is waited for.
    if (goes_on && limit_s < kCarrySeconds) {
      limit_s = kCarrySeconds;
      continue;
    }
    return fail(
        Code::kIo,
        "{}: the server that has it open has begun with the order and goes on with it; its log "
        "says when it is done",
        folder
    );
  }
}

}  // namespace artery::kvstore
