#pragma once
// Orders of a maintenance verb to the process that has the store open: small files in the folder's
// `orders/`. The verb writes `<16 hexadecimal digits>.ask`; the server looks once a second, removes
// it, carries it out and writes `<the same>.done`; the verb reads and removes that. Whoever removes
// the `.ask` has it: a verb that does so has withdrawn an order that nobody will carry out. The
// folder is open to its owner only, so whoever may write there may as well delete the store.
//
// A box belongs to one thread, ask() to the verb's. What is not an order is answered with an
// error or, when too old, removed.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/result.h"

namespace artery::kvstore {

struct Order {
  enum class Verb : std::uint8_t { kCollect, kDropTenant };
  Verb verb = Verb::kCollect;
  std::string tenant;  // of kDropTenant
};

// Orders of this age are of a verb that has died, or gave up, before anyone looked.
constexpr std::int64_t kOrderSeconds = 60;

// One line, as the files hold it. nullopt: no order; no answer.
std::string order_line(const Order& order, std::int64_t now_s);
std::optional<Order> parse_order(std::string_view text, std::int64_t& written_s);
// Bytes freed, or the error.
std::string answer_line(const Result<std::int64_t>& answer, std::int64_t now_s);
std::optional<Result<std::int64_t>> parse_answer(std::string_view text, std::int64_t& written_s);

class OrderBox {
 public:
  OrderBox(std::string folder, FileSystem& files);

  // Carries out what has come, oldest name first, and removes what nobody waits for. `carry_out`
  // returns the bytes freed.
  void poll(std::int64_t now_s, const std::function<Result<std::int64_t>(const Order&)>& carry_out);

 private:
  void answer(
      const std::string& name,
      std::int64_t now_s,
      const std::function<Result<std::int64_t>(const Order&)>& carry_out
  );

  const std::string folder_;
  FileSystem* const files_;
};

// Looks once a second from a thread of its own, so that neither a hanging disk nor an order that
// takes its time stands in anyone's way.
class OrderDesk {
 public:
  // `carry_out` is called on the desk's thread; it may wait, but must return soon once whoever it
  // waits for is closing.
  OrderDesk(
      std::string folder,
      FileSystem& files,
      const Clock& clock,
      std::function<Result<std::int64_t>(const Order&)> carry_out
  );
  ~OrderDesk();
  OrderDesk(const OrderDesk&) = delete;
  OrderDesk& operator=(const OrderDesk&) = delete;

 private:
  void main();

  OrderBox box_;
  const Clock* const clock_;
  const std::function<Result<std::int64_t>(const Order&)> carry_out_;
  Mutex mutex_;
  CondVar stopped_;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Gives the order and waits for the answer: bytes freed, or the server's error. `wait` is called
// between looks with the seconds waited so far; it sleeps a little and returns false to give up.
// kUnavailable: nobody took it in time, and it has been withdrawn; kCancelled: given up, and
// withdrawn. kIo: the server has begun, which cannot be taken back; the message says so.
Result<std::int64_t> ask(
    const std::string& folder,
    const Order& order,
    FileSystem& files,
    const Clock& clock,
    const std::function<bool(double waited_s)>& wait
);

}  // namespace artery::kvstore
