// Writes a page around a model that others made: write_page TITLE < MODEL > PAGE
#include <iostream>

#include "src/report/page/page.h"

int main(int count, char** arguments) {
  commpool::internal::WritePage(std::cout, count > 1 ? arguments[1] : "report",
                                [](std::ostream& out) { out << std::cin.rdbuf(); });
  return std::cout.flush() ? 0 : 1;
}
