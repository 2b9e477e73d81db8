// The ranks of a node read one table that rank 0 wrote: the node has it once, however many ranks there are. C++20. Run
// it under mpirun, one rank for each GPU, on one host.
#include <cuda.h>
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <vector>

#include "commpool/pool.h"
#include "commpool/share.h"
#include "examples/support/device.h"
#include "examples/support/job.h"

using commpool::Buffer;
using commpool::Pool;

constexpr std::uint64_t kNumbers = 1 << 22;  // 16 MiB

float NumberAt(std::uint64_t place) { return static_cast<float>(place % 1000); }

void Check(commpool_status status) {
  if (status != COMMPOOL_OK) throw std::runtime_error(commpool_last_error());
}

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

// Another rank's view of it, by the rank's own GPU.
class ImportedTable {
 public:
  ImportedTable(const char* ticket, const examples::Job& job) : stream_(job.stream) {
    commpool_import_options options;
    commpool_import_options_init(&options);
    options.device = job.device;
    Check(commpool_import_open(ticket, &options, &import_));
    Check(commpool_import_block(import_, ticket, &block_, nullptr));
  }
  ~ImportedTable() { commpool_import_close(import_); }
  ImportedTable(const ImportedTable&) = delete;
  ImportedTable& operator=(const ImportedTable&) = delete;

  std::vector<float> Read() const {
    std::vector<float> numbers(kNumbers);
    Check(commpool_read_begin(import_, block_));
    examples::Check(cuMemcpyDtoH(numbers.data(), examples::AddressOf(block_), kNumbers * sizeof(float)));
    Check(commpool_read_end(import_, block_, stream_));
    return numbers;
  }

 private:
  CUstream stream_;
  commpool_import import_ = 0;
  void* block_ = nullptr;
};

bool IsRight(const std::vector<float>& numbers) {
  for (std::uint64_t place = 0; place < kNumbers; ++place) {
    if (numbers[place] != NumberAt(place)) return false;
  }
  return true;
}

int main(int argc, char** argv) try {
  examples::Job job(argc, argv);
  std::optional<Table> table;
  char ticket[COMMPOOL_TICKET_BYTES] = {};
  if (job.rank == 0) {
    table.emplace(job);
    Check(commpool_block_share(table->block.data(), COMMPOOL_WRITES_ENDED, ticket, sizeof(ticket)));
    std::printf("%s\n", examples::DriverLine().c_str());
  }
  MPI_Bcast(ticket, sizeof(ticket), MPI_CHAR, 0, MPI_COMM_WORLD);
  bool right = true;
  if (job.rank != 0) {
    const ImportedTable imported(ticket, job);
    right = IsRight(imported.Read());
  }
  if (!job.AllRanks(right)) throw std::runtime_error("a rank reads another table");
  if (job.rank == 0) {
    std::printf("%d ranks read one table of %llu MiB: every number is right\n", job.ranks,
                static_cast<unsigned long long>(kNumbers * sizeof(float) >> 20));
  }
  return 0;
} catch (const std::exception& error) {
  return examples::JobFailed(error);
}
