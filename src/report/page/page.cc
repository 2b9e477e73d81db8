#include "src/report/page/page.h"

#include "src/report/page/parts.h"

namespace commpool::internal {
namespace {

void WriteEscaped(std::ostream& out, std::string_view text) {
  for (const char character : text) {
    switch (character) {
      case '<':
        out << "&lt;";
        break;
      case '&':
        out << "&amp;";
        break;
      default:
        out << character;
    }
  }
}

}  // namespace

void WritePage(std::ostream& out, std::string_view title, FunctionRef<void(std::ostream&)> write_model) {
  out << kPageBeforeTitle;
  WriteEscaped(out, title);
  out << kPageBeforeModel;
  write_model(out);
  out << kPageAfterModel;
}

}  // namespace commpool::internal
