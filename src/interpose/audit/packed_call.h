// Hands a call to its account: with its arguments as they are, or from the struct in which CUPTI has them.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstring>
#include <tuple>

#include "src/interpose/audit/accounts.h"
#include "src/interpose/audit/event.h"

namespace commpool::audit {

// Reads one member after the other of a struct that has them in this order.
class StructReader {
 public:
  explicit StructReader(const void* start) : start_(static_cast<const char*>(start)) {}

  template <typename Member>
  Member Next() {
    offset_ = (offset_ + alignof(Member) - 1) / alignof(Member) * alignof(Member);
    Member member;
    std::memcpy(&member, start_ + offset_, sizeof(Member));
    offset_ += sizeof(Member);
    return member;
  }

 private:
  const char* start_;
  size_t offset_ = 0;
};

template <typename Account, typename Function>
struct PackedCall;

template <typename Account, typename... Arguments>
struct PackedCall<Account, CUresult (*)(Arguments...)> {
  static void Before(Event& event, const void* parameters) {
    std::apply([&](Arguments... arguments) { Account::Before(event, arguments...); }, Unpack(parameters));
  }
  static void After(Event& event, const void* parameters) {
    std::apply([&](Arguments... arguments) { Account::After(event, arguments...); }, Unpack(parameters));
  }

 private:
  static std::tuple<Arguments...> Unpack(const void* parameters) {
    StructReader reader(parameters);
    return std::tuple<Arguments...>{reader.Next<Arguments>()...};  // braces: from the first to the last
  }
};

}  // namespace commpool::audit
