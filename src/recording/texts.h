// Texts: the numbers that texts have in a recording, and which of them the current chapter has told. Recorder owns one,
// under its lock.
#ifndef COMMPOOL_SRC_RECORDING_TEXTS_H_
#define COMMPOOL_SRC_RECORDING_TEXTS_H_

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
    all_.push_back({&numbers_.emplace(text, all_.size() + 1).first->first, 0});
    return all_.size();
  }
  // Whether this chapter has to tell the text before an entry with its number.
  bool MustTell(uint64_t number, uint64_t chapter) {
    if (number == 0 || all_[number - 1].told_in == chapter) return false;
    all_[number - 1].told_in = chapter;
    return true;
  }
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

#endif  // COMMPOOL_SRC_RECORDING_TEXTS_H_
