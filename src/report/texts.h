// Stacks and names, each kept once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace commpool::internal::report {

inline constexpr uint32_t kNoText = UINT32_MAX;

// The texts of a report, by index. A value that only grows; what it hands out stays valid while it lives.
class Texts {
 public:
  Texts() = default;
  Texts(Texts&&) = default;
  Texts& operator=(Texts&&) = default;

  uint32_t IndexOf(std::string_view text) {
    const auto found = indices_.find(text);
    if (found != indices_.end()) return found->second;
    const auto index = static_cast<uint32_t>(texts_.size());
    texts_.emplace_back(text);
    indices_.emplace(texts_.back(), index);
    return index;
  }
  // An empty text for kNoText.
  const std::string& operator[](uint32_t index) const {
    static const std::string none;
    return index < texts_.size() ? texts_[index] : none;
  }
  size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;  // its elements never move
  std::unordered_map<std::string_view, uint32_t> indices_;
};

// What the numbers of texts mean in one chapter of a recording.
class ChapterTexts {
 public:
  static constexpr size_t kMostBytes = 4096;

  explicit ChapterTexts(Texts& texts) : texts_(&texts) {}

  void Clear() { meanings_.clear(); }
  // A recorder writes no longer ones; a damaged or foreign file might.
  void Learn(uint64_t number, std::string_view text) {
    meanings_.insert_or_assign(number, texts_->IndexOf(text.substr(0, kMostBytes)));
  }
  // kNoText for 0, and where the text is missing.
  uint32_t IndexOf(uint64_t number) const {
    const auto found = number == 0 ? meanings_.end() : meanings_.find(number);
    return found == meanings_.end() ? kNoText : found->second;
  }
  const std::string& TextOf(uint64_t number) const { return (*texts_)[IndexOf(number)]; }

 private:
  Texts* texts_;
  std::unordered_map<uint64_t, uint32_t> meanings_;
};

}  // namespace commpool::internal::report
