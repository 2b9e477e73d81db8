#include "tools/cli/replay/report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "src/library/base/bytes.h"

namespace commpool::cli {

namespace {

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

nlohmann::json CountsOf(const DriverCallsByName& calls) {
  nlohmann::json counts = nlohmann::json::object();
  for (const auto& [name, call] : calls) counts[name] = call.count;
  return counts;
}

std::string Percent(const std::optional<double>& share) {
  if (!share) return "-";
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%.1f", *share * 100);
  return text.data();
}

std::string Smallest(const ReplayRow& row) {
  if (!row.smallest_device_bytes) return "-";
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%.3f", row.smallest_device_ratio());
  return text.data();
}

void PrintCalls(const char* title, const DriverCallsByName& calls) {
  if (calls.empty()) return;
  std::printf("#   %s:", title);
  for (const auto& [name, call] : calls) {
    std::printf(" %s %llu (%.0f us)", name.c_str(), static_cast<unsigned long long>(call.count), call.microseconds);
  }
  std::printf("\n");
}

void PrintDetails(const ReplayRow& row) {
  std::printf("# %s\n", row.name.c_str());
  PrintCalls("driver calls", row.measures.calls);
  PrintCalls("in the second half", row.measures.calls_in_second_half);
  if (row.again) {
    std::printf("#   reserve(%llu) runs it at once; with reserve(%llu) it reserves %llu times more\n",
                static_cast<unsigned long long>(row.reservation_bytes.value_or(0)),
                static_cast<unsigned long long>(row.reserved_at_first),
                static_cast<unsigned long long>(row.again->costs.reserves));
  }
  if (!row.torch) return;
  const double utilisation = Share(row.peak_requested_bytes, row.torch->peak_reserved_bytes);
  std::printf(
      "#   PyTorch here: %.0f us in calls of over 20 us (its driver time), utilisation %.1f %%, %.0f ns an event\n",
      row.torch->slow_us, utilisation * 100, row.torch->ns_per_event);
}

}  // namespace

double ReplayRow::utilisation() const { return Share(peak_requested_bytes, measures.peak_reserved_bytes); }

std::optional<double> ReplayRow::utilisation_again() const {
  if (!again) return std::nullopt;
  return Share(peak_requested_bytes, again->peak_reserved_bytes);
}

double ReplayRow::smallest_device_ratio() const {
  return Share(smallest_device_bytes.value_or(0), internal::RoundUp(peak_requested_bytes, MiB(2)));
}

nlohmann::json ToJson(const ReplayRow& row) {
  const ReplayMeasures& measures = row.measures;
  const DriverCalls driver = Sum(measures.calls);
  nlohmann::json json = {
      {"name", row.name},
      {"mode", row.mode},
      {"events", row.events},
      {"peak_requested_bytes", row.peak_requested_bytes},
      {"peak_reserved_bytes", measures.peak_reserved_bytes},
      {"utilisation", row.utilisation()},
      {"smallest_device_bytes", nullptr},
      {"ns_per_event", measures.ns_per_event},
      {"wall_ns_per_event", measures.wall_ns_per_event},
      {"short_ns_per_event", measures.short_ns_per_event},
      {"long_us", measures.long_us},
      {"driver_us", driver.microseconds},
      {"waits", measures.costs.waits},
      {"moved_bytes", measures.costs.moved_bytes},
      {"driver_calls", CountsOf(measures.calls)},
      {"steady_driver_calls", Sum(measures.calls_in_second_half).count},
      {"second_half",
       {{"driver_calls", CountsOf(measures.calls_in_second_half)}, {"waits", measures.waits_in_second_half}}},
      {"driver_us_by_call", nlohmann::json::object()}};
  for (const auto& [name, call] : measures.calls) json["driver_us_by_call"][name] = call.microseconds;
  if (row.smallest_device_bytes) {
    json["smallest_device_bytes"] = *row.smallest_device_bytes;
    json["smallest_device_ratio"] = row.smallest_device_ratio();
  }
  if (row.again) {
    json["reservation_bytes"] = row.reservation_bytes.value_or(0);
    json["reserves"] = measures.costs.reserves;
    json["reserve_again"] = {{"reserved_at_first_bytes", row.reserved_at_first},
                             {"peak_reserved_bytes", row.again->peak_reserved_bytes},
                             {"utilisation", *row.utilisation_again()},
                             {"reserves", row.again->costs.reserves}};
  }
  if (row.pytorch_native) json["pytorch_native_utilisation"] = *row.pytorch_native;
  if (row.pytorch_expandable) json["pytorch_expandable_utilisation"] = *row.pytorch_expandable;
  if (row.torch) {
    json["pytorch_here"] = {{"driver_us", row.torch->slow_us},
                            {"peak_reserved_bytes", row.torch->peak_reserved_bytes},
                            {"utilisation", Share(row.peak_requested_bytes, row.torch->peak_reserved_bytes)},
                            {"ns_per_event", row.torch->ns_per_event}};
  }
  return json;
}

void PrintTable(const std::vector<ReplayRow>& rows) {
  std::printf("%-18s %-10s %10s %10s %6s %6s %7s %7s %8s %9s %9s %6s %10s %6s\n", "trace", "mode", "requested",
              "reserved", "in use", "again", "native", "expand.", "smallest", "ns/event", "driver us", "waits", "moved",
              "steady");
  for (const ReplayRow& row : rows) {
    const ReplayMeasures& measures = row.measures;
    std::printf("%-18s %-10s %10s %10s %6s %6s %7s %7s %8s %9.1f %9.0f %6llu %10s %6llu\n", row.name.c_str(),
                row.mode.c_str(), internal::FormatBytes(row.peak_requested_bytes).c_str(),
                internal::FormatBytes(measures.peak_reserved_bytes).c_str(), Percent(row.utilisation()).c_str(),
                Percent(row.utilisation_again()).c_str(), Percent(row.pytorch_native).c_str(),
                Percent(row.pytorch_expandable).c_str(), Smallest(row).c_str(), measures.ns_per_event,
                Sum(measures.calls).microseconds, static_cast<unsigned long long>(measures.costs.waits),
                internal::FormatBytes(measures.costs.moved_bytes).c_str(),
                static_cast<unsigned long long>(Sum(measures.calls_in_second_half).count));
  }
  for (const ReplayRow& row : rows) PrintDetails(row);
}

}  // namespace commpool::cli
