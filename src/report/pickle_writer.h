// Writes Python's pickles as a stream: dictionaries, lists, texts, whole numbers, truth values and None. Protocol 2,
// which all readers know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace commpool::internal::report {

// Keys and values of a dictionary follow each other. Not thread-safe.
class PickleWriter {
 public:
  explicit PickleWriter(std::ostream& out) : out_(&out) { Bytes("\x80\x02"); }
  PickleWriter(const PickleWriter&) = delete;
  PickleWriter& operator=(const PickleWriter&) = delete;

  void BeginDict() { Open('}', 'u', 2); }
  void EndDict() { Close(); }
  void BeginList() { Open(']', 'e', 1); }
  void EndList() { Close(); }
  void Number(int64_t number);
  void Number(uint64_t number);
  void True() { Leaf("\x88"); }
  void False() { Leaf("\x89"); }
  void None() { Leaf("N"); }
  // Equal texts are one object in the reader.
  void Text(std::string_view text);
  // Lets the object that was just ended be named again; returns its name.
  uint32_t Remember();
  void Again(uint32_t name);
  // Ends the pickle.
  void Finish() { Bytes("."); }

 private:
  struct Container {
    char end;
    uint32_t parts;  // of an element
    uint32_t written = 0;
  };

  void Bytes(std::string_view bytes) { out_->write(bytes.data(), static_cast<std::streamsize>(bytes.size())); }
  void Little(uint64_t number, size_t bytes);
  void Open(char empty, char end, uint32_t parts);
  void Close();
  void Leaf(std::string_view bytes);
  // Before each part: readers hold what was not put into its container yet.
  void Part();

  std::ostream* out_;
  std::vector<Container> open_;
  std::unordered_map<std::string, uint32_t> texts_;
  uint32_t next_name_ = 0;
};

}  // namespace commpool::internal::report
