// Texts: the numbers that texts have in a recording, and which of them the current chapter has told. Recorder owns one,
// under its lock.
#ifndef COMMPOOL_SRC_LIBRARY_RECORDING_TEXTS_H_
#define COMMPOOL_SRC_LIBRARY_RECORDING_TEXTS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace commpool::internal::recording {

class Texts {
 public:
  // Longer ones are cut: an entry and its texts fit into a page.
  static constexpr size_t kMostBytes = 4096;
  // A program with more stacks than that gets no numbers for further ones.
  static constexpr size_t kMost = 1 << 16;

  // 0 for an empty text, and where there are too many.
  uint64_t NumberOf(std::string_view text) {
    text = text.substr(0, kMostBytes);
    if (text.empty()) return 0;
    const auto known = numbers_.find(std::string(text));
    if (known != numbers_.end()) return known->second;
    if (all_.size() == kMost) return 0;
    // Room first: a number that the map knows must have its place.
    if (all_.size() == all_.capacity()) all_.reserve(std::max<size_t>(16, 2 * all_.size()));
    all_.push_back({&numbers_.emplace(text, all_.size() + 1).first->first, 0});
    return all_.size();
  }
  // Whether this chapter has to tell the text before an entry with its number. Call Told once it has.
  bool MustTell(uint64_t number, uint64_t chapter) const { return number != 0 && all_[number - 1].told_in != chapter; }
  void Told(uint64_t number, uint64_t chapter) { all_[number - 1].told_in = chapter; }
  const std::string& TextOf(uint64_t number) const { return *all_[number - 1].text; }

 private:
  struct Known {
    const std::string* text;
    uint64_t told_in;  // the last chapter that told it; 0: none
  };

  std::unordered_map<std::string, uint64_t> numbers_;
  std::vector<Known> all_;
};

}  // namespace commpool::internal::recording

#endif  // COMMPOOL_SRC_LIBRARY_RECORDING_TEXTS_H_
