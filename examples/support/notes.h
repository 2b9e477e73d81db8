// Notes from ranks that may die to their launcher: short files in a folder that all can read, each written once.
//
// Any thread of any rank writes; the launcher reads when they have ended.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace examples {

class Notes {
 public:
  explicit Notes(std::string folder) : folder_(std::move(folder)) {}

  // Keeps the first note of a name. Without a folder it writes nothing.
  void Write(const std::string& name, const std::string& text) const;
  void Write(const std::string& name, double number) const;
  // By this machine's clock; the clocks of several hosts differ.
  void WriteTime(const std::string& name) const;

  std::optional<std::string> Read(const std::string& name) const;
  // The note's number as JSON, or null where there is none.
  std::string Number(const std::string& name) const;

 private:
  std::string PathOf(const std::string& name) const { return folder_ + "/note." + name; }

  const std::string folder_;
};

}  // namespace examples
