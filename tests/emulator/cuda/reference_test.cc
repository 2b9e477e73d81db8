// src/emulator/reference.md has a line of its table for every key, with its default.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "src/emulator/description.h"

namespace commpool::internal::emulator {
namespace {

std::string Reference() {
  const char* folder = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  const std::string root = folder != nullptr ? std::string(folder) + "/" + workspace + "/" : "./";
  std::ifstream file(root + "src/emulator/reference.md");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(EmulatorReference, ListsEveryKeyWithItsDefault) {
  const std::string text = Reference();
  ASSERT_FALSE(text.empty());
  for (const KnownKey& key : KnownKeys()) {
    const std::string value = *key.default_value == '\0' ? "none" : key.default_value;
    const std::string line = "| `" + std::string(key.name) + "` | " + value + " |";
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace commpool::internal::emulator
