// What the program told PyTorch's allocator before the router was there: which devices reach each other's memory, what
// fraction of a device it may use, and that it records history. PyTorch reports each of them only once.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_EARLIER_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_EARLIER_H_

namespace commpool::torch_adapter {

// Call it when the router is in place: from then on the router hears of changes.
void TakeOver();

// For a device whose first pool is now known: takes over its fraction, which may come from PyTorch's configuration.
void TakeOverFraction(int device);

// Limits our pools on the device to the fraction of its memory. Throws if the library refuses.
void LimitPools(int device, double fraction);

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_EARLIER_H_
