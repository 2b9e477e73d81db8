// The ranks of a node read one table that rank 0 wrote: the node has it once, however many ranks there are. C++20. Run
// it under mpirun, one rank for each GPU, on one host.
#include <cuda.h>
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "commpool/import.h"
#include "commpool/pool.h"
#include "examples/support/device.h"
#include "examples/support/job.h"

using commpool::Buffer;
using commpool::Import;
using commpool::ImportedBlock;
using commpool::Pool;
using commpool::Writes;

constexpr std::uint64_t kNumbers = 1 << 22;  // 16 MiB

float NumberAt(std::uint64_t place) { return static_cast<float>(place % 1000); }

// Rank 0's table. Nobody writes to it once it has a ticket.
struct Table {
  explicit Table(const examples::Job& job) {
    std::vector<float> numbers(kNumbers);
    for (std::uint64_t place = 0; place < kNumbers; ++place) numbers[place] = NumberAt(place);
    examples::Upload(numbers, block, job.stream);
    examples::Check(cuStreamSynchronize(job.stream));
  }
  Pool pool = Pool::create({.name = "tables"}).value();
  Buffer block = pool.allocate(kNumbers * sizeof(float), nullptr).value();
};

// What another rank reads of it, by the rank's own GPU.
std::vector<float> ReadTable(const std::string& ticket, const examples::Job& job) {
  Import import = Import::open(ticket, {.device = job.device}).value();
  const ImportedBlock block = import.block(ticket).value();
  std::vector<float> numbers(kNumbers);
  import.begin_read(block).or_throw();
  examples::Check(cuMemcpyDtoH(numbers.data(), examples::AddressOf(block.data), block.bytes));
  import.end_read(block, job.stream).or_throw();
  import.close().or_throw();
  return numbers;
}

bool IsRight(const std::vector<float>& numbers) {
  for (std::uint64_t place = 0; place < kNumbers; ++place) {
    if (numbers[place] != NumberAt(place)) return false;
  }
  return true;
}

int main(int argc, char** argv) try {
  examples::Job job(argc, argv);
  std::optional<Table> table;
  std::string ticket;
  if (job.rank == 0) {
    table.emplace(job);
    ticket = table->pool.share(table->block.data(), Writes::kEnded).value();
    std::printf("%s\n", examples::DriverLine().c_str());
  }
  ticket.resize(COMMPOOL_TICKET_BYTES);
  MPI_Bcast(ticket.data(), COMMPOOL_TICKET_BYTES, MPI_CHAR, 0, MPI_COMM_WORLD);
  const bool right = job.rank == 0 || IsRight(ReadTable(ticket, job));
  if (!job.AllRanks(right)) throw std::runtime_error("a rank reads another table");
  if (job.rank == 0) {
    std::printf("%d ranks read one table of %llu MiB: every number is right\n", job.ranks,
                static_cast<unsigned long long>(kNumbers * sizeof(float) >> 20));
  }
  return 0;
} catch (const std::exception& error) {
  return examples::JobFailed(error);
}
