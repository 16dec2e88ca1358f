#include "program.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

extern char** environ;

namespace artery::testing_cli {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Servers keep no KV store unless a test names one: the user's folder is not the tests' place.
bool starts_a_server(const std::vector<std::string>& arguments) {
  const auto has = [&](const char* word) {
    return std::find(arguments.begin(), arguments.end(), word) != arguments.end();
  };
  const bool serves =
      !arguments.empty() && (arguments[0] == "serve" || arguments[0] == "run-batch");
  return serves && !has("--print-config");
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& more) {
  std::vector<std::string> out;
  for (char** item = environ; *item != nullptr; ++item)
    if (std::strncmp(*item, "ARTERY_", 7) != 0) out.emplace_back(*item);
  for (const auto& [name, value] : more) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

struct Child {
  pid_t pid = -1;
  int in = -1, out = -1, err = -1;  // our ends; -1 where not wanted
};

Child spawn(const Invocation& invocation, bool with_in_and_out) {
  int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
  if (pipe2(err, O_CLOEXEC) != 0) std::abort();
  if (with_in_and_out && (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)) std::abort();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (with_in_and_out) {
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  std::vector<std::string> words = {ARTERY_BUILD_DIR "/artery"};
  words.insert(words.end(), invocation.arguments.begin(), invocation.arguments.end());
  std::vector<std::string> environment = environment_with(invocation.environment);
  if (starts_a_server(invocation.arguments) && !invocation.environment.contains("ARTERY_KV_DIR"))
    environment.emplace_back("ARTERY_KV_DIR=none");
  Child child;
  if (posix_spawn(
          &child.pid,
          words[0].c_str(),
          &actions,
          nullptr,
          pointers(words).data(),
          pointers(environment).data()
      ) != 0)
    child.pid = -1;
  posix_spawn_file_actions_destroy(&actions);
  for (const int fd : {in[0], out[1], err[1]})
    if (fd >= 0) close(fd);
  child.in = in[1];
  child.out = out[0];
  child.err = err[0];
  return child;
}

// Appends what is there; closes and forgets the descriptor at its end.
void read_into(int& fd, std::string& text) {
  char buffer[65536];
  const ssize_t got = read(fd, buffer, sizeof buffer);
  if (got > 0) {
    text.append(buffer, static_cast<std::size_t>(got));
  } else if (got == 0) {
    close(fd);
    fd = -1;
  }
}

void write_some(int& fd, const std::string& text, std::size_t& written) {
  const ssize_t got = write(fd, text.data() + written, text.size() - written);
  if (got > 0) written += static_cast<std::size_t>(got);
  if (got < 0 || written == text.size()) {
    close(fd);
    fd = -1;
  }
}

void set_status(Outcome& outcome, int status) {
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
}

}  // namespace

Outcome run_artery(const Invocation& invocation) {
  signal(SIGPIPE, SIG_IGN);
  const double start = now_s();
  Outcome outcome;
  Child child = spawn(invocation, true);
  if (child.pid < 0) {
    outcome.err = "cannot start " ARTERY_BUILD_DIR "/artery";
    return outcome;
  }
  fcntl(child.in, F_SETFL, O_NONBLOCK);
  std::size_t written = 0;
  if (invocation.input.empty()) write_some(child.in, "", written);
  while (child.out >= 0 || child.err >= 0) {
    pollfd fds[3] = {{child.in, POLLOUT, 0}, {child.out, POLLIN, 0}, {child.err, POLLIN, 0}};
    poll(fds, 3, 100);
    if (fds[0].revents != 0 && child.in >= 0) write_some(child.in, invocation.input, written);
    if (fds[1].revents != 0 && child.out >= 0) read_into(child.out, outcome.out);
    if (fds[2].revents != 0 && child.err >= 0) read_into(child.err, outcome.err);
    if (now_s() - start > invocation.timeout_s) kill(child.pid, SIGKILL);
  }
  if (child.in >= 0) close(child.in);
  int status = 0;
  waitpid(child.pid, &status, 0);
  set_status(outcome, status);
  outcome.seconds = now_s() - start;
  return outcome;
}

Outcome run_artery(const std::vector<std::string>& arguments, const std::string& input) {
  return run_artery(Invocation{.arguments = arguments, .input = input, .environment = {}});
}

Server::Server(std::vector<std::string> arguments, const std::string& verb) {
  arguments.insert(arguments.begin(), verb);
  if (verb == "serve") arguments.insert(arguments.end(), {"--port", "0"});
  const Child child = spawn({.arguments = arguments, .input = "", .environment = {}}, false);
  pid_ = child.pid;
  err_fd_ = child.err;
}

Server::~Server() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (err_fd_ >= 0) close(err_fd_);
}

bool Server::read_some(int timeout_ms) {
  pollfd fd = {err_fd_, POLLIN, 0};
  if (err_fd_ >= 0 && poll(&fd, 1, timeout_ms) > 0) read_into(err_fd_, log_);
  return err_fd_ >= 0;
}

bool Server::wait_for(const std::string& text) {
  const double end = now_s() + 60;
  while (log_.find(text) == std::string::npos)
    if (now_s() > end || !read_some(100)) return log_.find(text) != std::string::npos;
  return true;
}

int Server::port() const {
  const std::string before = "listening on http://127.0.0.1:";
  const std::size_t at = log_.find(before);
  return at == std::string::npos ? 0 : std::atoi(log_.c_str() + at + before.size());
}

std::string Server::request(
    const std::string& method, const std::string& path, const std::string& body
) const {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    const std::string text =
        method + " " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" +
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body;
    send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    char buffer[65536];
    for (ssize_t got = 0; (got = recv(fd, buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(got));
  }
  close(fd);
  return answer;
}

void Server::signal(int number) const {
  if (pid_ > 0) kill(pid_, number);
}

Outcome Server::wait(double timeout_s) {
  const double start = now_s();
  Outcome outcome;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (now_s() - start > timeout_s) return outcome;
    read_some(20);
  }
  pid_ = -1;
  while (read_some(0)) {
  }
  set_status(outcome, status);
  outcome.err = log_;
  outcome.seconds = now_s() - start;
  return outcome;
}

std::filesystem::path shared_path(const std::string& inside) {
  return std::filesystem::path(ARTERY_SOURCE_DIR).parent_path() / "shared" / inside;
}

std::string model_path(const std::string& file) {
  const char* folder = std::getenv("ARTERY_MODELS");
  const std::filesystem::path path =
      std::filesystem::path(folder != nullptr ? folder : ARTERY_SOURCE_DIR "/build/models") / file;
  return std::filesystem::exists(path) ? path.string() : "";
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "artery-test-XXXXXX").string();
  path_ = mkdtemp(name.data());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& content) const {
  std::ofstream(path_ / name, std::ios::binary) << content;
  return file(name);
}

}  // namespace artery::testing_cli
