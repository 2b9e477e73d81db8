// commpool report: makes one page of what the recordings of a program's ranks hold, or exports one rank's.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>

#include "src/base/bytes.h"
#include "src/base/try.h"
#include "src/report/model_json.h"
#include "src/report/page/page.h"
#include "src/report/report_builder.h"
#include "tools/cli/commands.h"

namespace commpool::cli {

namespace {

using internal::report::Recordings;

enum class As { kHtml };

const std::map<std::string, As> kAs = {{"html", As::kHtml}};

struct ReportArguments {
  std::string place;
  std::string output = "report.html";
  As as = As::kHtml;
};

void WriteHtml(std::ostream& out, const Recordings& recordings) {
  const internal::report::ReportModel model = internal::report::BuildReport(recordings);
  internal::WritePage(out, model.title, [&](std::ostream& page) { internal::report::WriteModel(page, model); });
  for (const std::string& note : model.notes) std::printf("%s\n", note.c_str());
  for (const internal::report::RankModel& rank : model.ranks) {
    for (const std::string& note : rank.notes) {
      std::printf("rank %lld: %s\n", static_cast<long long>(rank.rank), note.c_str());
    }
  }
}

Result<int> Run(const ReportArguments& arguments) {
  const Recordings recordings = COMMPOOL_TRY(internal::report::OpenRecordings(arguments.place));
  const std::string& file = arguments.output;
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  if (out) WriteHtml(out, recordings);
  const auto bytes = static_cast<int64_t>(out.tellp());
  out.close();
  if (!out) return Status(StatusCode::kInvalidArgument, "cannot write " + file + ": " + std::strerror(errno));
  std::printf("%s: %s, %s\n", file.c_str(), Counted(static_cast<int64_t>(recordings.readers.size()), "rank").c_str(),
              internal::FormatBytes(static_cast<uint64_t>(bytes)).c_str());
  return kSuccess;
}

}  // namespace

void AddReport(Command app) {
  const auto arguments = std::make_shared<ReportArguments>();
  Command command = app.Add("report", "Make one page of what a program's ranks recorded");
  command.AddOption("DIR", arguments->place, "The folder of the recordings, or one of them").Required();
  command.AddOption("--output", arguments->output, "Where the page goes").Called("FILE");
  AddChoice(command, "--as", arguments->as, kAs, "A page for a browser");
  command.Footer(
      "Examples:\n"
      "  commpool report recordings\n"
      "  commpool report recordings --output mine.html");
  command.Do([arguments] { return Run(*arguments); });
}

}  // namespace commpool::cli
