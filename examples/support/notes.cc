#include "examples/support/notes.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>

namespace examples {

void Notes::Write(const std::string& name, const std::string& text) const {
  if (folder_.empty()) return;
  const int file = open(PathOf(name).c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (file < 0) return;  // the note exists already
  if (write(file, text.data(), text.size()) < 0) std::perror("a note could not be written");
  close(file);
}

void Notes::Write(const std::string& name, double number) const {
  char text[40];
  std::snprintf(text, sizeof(text), "%.16g", number);
  Write(name, std::string(text));
}

void Notes::WriteTime(const std::string& name) const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Write(name, std::chrono::duration<double, std::milli>(now).count());
}

std::optional<std::string> Notes::Read(const std::string& name) const {
  std::ifstream file(PathOf(name));
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string Notes::Number(const std::string& name) const { return Read(name).value_or("null"); }

}  // namespace examples
