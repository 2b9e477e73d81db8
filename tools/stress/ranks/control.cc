#include "tools/stress/ranks/control.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "tools/common/command.h"

namespace commpool::cli::stress_ranks {

namespace {

// Splits "WORD NAME VALUE" into "WORD NAME" and "VALUE".
std::pair<std::string, std::string> Split(const std::string& line) {
  const size_t word = line.find(' ');
  const size_t name = word == std::string::npos ? word : line.find(' ', word + 1);
  if (name == std::string::npos) return {line, ""};
  return {line.substr(0, name), line.substr(name + 1)};
}

}  // namespace

void Control::Send(const std::string& line) {
  const std::scoped_lock lock(sending_);
  const std::string text = line + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(descriptor_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) std::_Exit(kFailed);
    done += static_cast<size_t>(count);
  }
}

std::string Control::Await(const std::string& key) {
  while (values_.count(key) == 0) {
    std::array<char, 4096> bytes = {};
    const ssize_t count = read(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) std::_Exit(kFailed);
    unread_.append(bytes.data(), static_cast<size_t>(count));
    for (const std::string& line : TakeLines(unread_)) values_.insert(Split(line));
  }
  return values_.at(key);
}

std::vector<std::string> TakeLines(std::string& bytes) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end = bytes.find('\n'); end != std::string::npos; end = bytes.find('\n', begin)) {
    lines.push_back(bytes.substr(begin, end - begin));
    begin = end + 1;
  }
  bytes.erase(0, begin);
  return lines;
}

}  // namespace commpool::cli::stress_ranks
