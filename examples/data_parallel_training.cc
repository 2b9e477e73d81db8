// Data-parallel training: each rank computes gradients of its own samples in a symmetric pool, the ranks sum them, and
// each rank updates its copy of the parameters. C++20. Run it under mpirun, one rank for each GPU.
#include <mpi.h>
#include <nccl.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <vector>

#include "commpool/pool.h"
#include "commpool/scope.h"
#include "examples/support/device.h"
#include "examples/support/job.h"
#include "examples/support/perceptron.h"

using commpool::Buffer;
using commpool::MiB;
using commpool::Pool;
using commpool::PoolScope;
using examples::Job;
using examples::Perceptron;

namespace {

constexpr int kSteps = 200;
constexpr int kStepsBetweenReports = 25;
constexpr float kLearningRate = 0.03f;
constexpr int kSamplesOfARank = 64;

// One step. The gradients live in the pool, and are freed at the step's end.
void Step(Perceptron& model, const Job& job, std::vector<float>* report) {
  Buffer gradients = model.backward();
  examples::Check(ncclAllReduce(gradients.data(), gradients.data(), model.gradient_count(), ncclFloat, ncclSum,
                                job.comm, job.stream));
  model.update(gradients, kLearningRate / static_cast<float>(job.ranks));
  if (report != nullptr) *report = examples::Download(gradients, job.stream);
}

bool SameOnAllRanks(const Buffer& parameters, const Job& job) {
  const std::vector<float> mine = examples::Download(parameters, job.stream);
  std::vector<float> of_rank_0 = mine;
  MPI_Bcast(of_rank_0.data(), static_cast<int>(parameters.bytes()), MPI_BYTE, 0, MPI_COMM_WORLD);
  return job.AllRanks(std::memcmp(mine.data(), of_rank_0.data(), parameters.bytes()) == 0);
}

}  // namespace

int main(int argc, char** argv) try {
  Job job(argc, argv);
  const std::vector<examples::Sample> samples = examples::SamplesOfTheSine(job.rank, kSamplesOfARank);
  Perceptron model(samples, job.stream);

  Pool pool = Pool::create({.name = "gradients", .device = job.device, .symmetric_across = job.comm}).value();
  if (job.rank == 0) std::printf("%s\n", examples::DriverLine().c_str());
  pool.reserve(MiB(2)).or_throw();
  float first_loss = 0;
  float loss = 0;
  for (int step = 0; step <= kSteps; ++step) {
    std::vector<float> report;
    const bool reports = step % kStepsBetweenReports == 0;
    {
      PoolScope scope(pool);
      Step(model, job, reports ? &report : nullptr);
    }
    pool.reclaim().value();  // collective: memory that every rank has freed serves again
    if (!reports) continue;
    loss = report.back() / static_cast<float>(job.ranks);
    if (step == 0) first_loss = loss;
    if (job.rank == 0) std::printf("step %3d  loss %.5f\n", step, loss);
  }
  if (!(loss < first_loss / 4)) throw std::runtime_error("the loss did not fall");
  if (!SameOnAllRanks(model.parameters(), job)) throw std::runtime_error("the ranks' parameters differ");
  if (job.rank == 0) std::printf("%d ranks agree on the parameters bit for bit\n", job.ranks);
  pool.close().or_throw();
  return 0;
} catch (const std::exception& error) {
  return examples::JobFailed(error);
}
