#pragma once
// Runs the built program as a user does: arguments, environment, standard input; gives back exit
// code and output. For tests; one thread.

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace artery::testing_cli {

struct Outcome {
  int exit_code = -1;  // of exit(); -1 when a signal ended it
  int signal = 0;
  std::string out, err;
  double seconds = 0;
};

struct Invocation {
  std::vector<std::string> arguments;
  std::string input;
  std::map<std::string, std::string> environment;  // beside the test's own without ARTERY_*
  double timeout_s = 120;                          // then SIGKILL
};

Outcome run_artery(const Invocation& invocation);
Outcome run_artery(const std::vector<std::string>& arguments, const std::string& input = "");

// A running `artery serve ARGUMENTS... --port 0`, or another verb that runs until it is told to
// end; killed when it goes out of scope.
class Server {
 public:
  explicit Server(std::vector<std::string> arguments, const std::string& verb = "serve");
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Waits until standard error holds `text`; false when the process ended or 60 s passed.
  bool wait_for(const std::string& text);
  int port() const;  // 0 before "listening" was logged
  const std::string& log() const { return log_; }
  // One HTTP request on a connection of its own; the whole response, headers and all.
  std::string request(
      const std::string& method, const std::string& path, const std::string& body = ""
  ) const;
  void signal(int number) const;
  Outcome wait(double timeout_s);

 private:
  bool read_some(int timeout_ms);
  pid_t pid_ = -1;
  int err_fd_ = -1;
  std::string log_;
};

std::filesystem::path shared_path(const std::string& inside);  // ../shared/<inside>
// A model in build/models or $ARTERY_MODELS; empty when it is not there.
std::string model_path(const std::string& file);

// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  // Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& content) const;

 private:
  std::filesystem::path path_;
};

}  // namespace artery::testing_cli
