// A library that registers memory, for tests of registrars: it remembers what a pool told it, and fails where asked.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "commpool/registrar.h"
#include "src/library/registration/registrar_book.h"

namespace commpool::internal::testing {

class LibraryOfATest {
 public:
  explicit LibraryOfATest(std::string name = "library") : name_(std::move(name)) {}
  LibraryOfATest(const LibraryOfATest&) = delete;
  LibraryOfATest& operator=(const LibraryOfATest&) = delete;

  // As a program passes it to the C ABI, and as the library keeps it.
  commpool_registrar Functions() {
    commpool_registrar functions;
    commpool_registrar_init(&functions);
    functions.name = name_.c_str();
    functions.context = this;
    functions.check = &Check;
    functions.add = &Add;
    functions.remove = &Remove;
    functions.end = &End;
    return functions;
  }
  Registrar Copied() { return {.name = name_, .functions = Functions()}; }

  const std::string& name() const { return name_; }
  const commpool_segment_traits& traits() const { return traits_; }
  // Sizes by addresses, in the order of addresses.
  const std::map<void*, uint64_t>& registered() const { return registered_; }
  uint64_t bytes() const {
    uint64_t bytes = 0;
    for (const auto& [address, size] : registered_) bytes += size;
    return bytes;
  }
  int added() const { return added_; }
  int ended() const { return ended_; }

  // What the functions answer, and what they do first.
  commpool_status check_answers = COMMPOOL_OK;
  commpool_status add_answers = COMMPOOL_OK;
  commpool_status remove_answers = COMMPOOL_OK;
  int adds_before_failure = 0;  // so many come through although add_answers is a failure
  std::string why = "the card is full";
  std::function<void()> before_add = [] {};

 private:
  static LibraryOfATest& Of(void* context) { return *static_cast<LibraryOfATest*>(context); }
  static commpool_status Answer(commpool_status answer, const std::string& reason, char* why, size_t why_bytes) {
    if (answer != COMMPOOL_OK) std::snprintf(why, why_bytes, "%s", reason.c_str());
    return answer;
  }
  static commpool_status Check(void* context, const commpool_segment_traits* traits, char* why, size_t why_bytes) {
    Of(context).traits_ = *traits;
    return Answer(Of(context).check_answers, Of(context).why, why, why_bytes);
  }
  static commpool_status Add(void* context, void* address, uint64_t bytes, void** handle, char* why, size_t why_bytes) {
    LibraryOfATest& library = Of(context);
    library.before_add();
    if (library.add_answers != COMMPOOL_OK && library.adds_before_failure-- <= 0) {
      return Answer(library.add_answers, library.why, why, why_bytes);
    }
    EXPECT_TRUE(library.registered_.emplace(address, bytes).second) << "registered twice";
    ++library.added_;
    *handle = static_cast<char*>(address) + 1;
    return COMMPOOL_OK;
  }
  static commpool_status Remove(void* context, void* address, uint64_t bytes, void* handle, char* why,
                                size_t why_bytes) {
    LibraryOfATest& library = Of(context);
    if (library.remove_answers != COMMPOOL_OK) return Answer(library.remove_answers, library.why, why, why_bytes);
    EXPECT_EQ(handle, static_cast<char*>(address) + 1);
    const auto found = library.registered_.find(address);
    if (found == library.registered_.end() || found->second != bytes) {
      ADD_FAILURE() << "deregistered what was not registered";
      return COMMPOOL_OK;
    }
    library.registered_.erase(found);
    return COMMPOOL_OK;
  }
  static void End(void* context) { ++Of(context).ended_; }

  const std::string name_;
  commpool_segment_traits traits_ = {};
  std::map<void*, uint64_t> registered_;
  int added_ = 0;
  int ended_ = 0;
};

}  // namespace commpool::internal::testing
