// Passes requests on standard input to the allocator of torch and prints what it did.
//
//   a ID BYTES STREAM   allocate          u ID STREAM   another stream uses it
//   f ID                free              e             empty the cache
//
// One line for each: the address (0: out of memory) and torch's own statistics. Then the recorded
// history, and the blocks at the end.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/PeerToPeerAccess.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <unistd.h>
#include <unordered_map>

namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*)(c10::DeviceIndex)); // exported, and in no header
}

using namespace c10::cuda::CUDACachingAllocator;

int main() {
  auto* allocator = get();
  allocator->init(1);
  c10::cuda::detail::init_p2p_access_cache(1);
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  allocator->recordHistory(true, nullptr, 10'000'000, RecordContext::NEVER, false, {});
  std::unordered_map<long, void*> held;
  std::string request;
  while (std::cin >> request) {
    long id = 0;
    size_t address = 0, bytes = 0, stream = 0;
    if (request == "a") {
      std::cin >> id >> bytes >> stream;
      try {
        held[id] = allocator->raw_alloc_with_stream(bytes, reinterpret_cast<cudaStream_t>(stream));
        address = reinterpret_cast<size_t>(held[id]);
      } catch (const c10::OutOfMemoryError&) {
        held.erase(id);
      }
    } else if (request == "f") {
      std::cin >> id;
      if (held.count(id))
        allocator->raw_delete(held[id]);
      held.erase(id);
    } else if (request == "u") {
      std::cin >> id >> stream;
      if (held.count(id)) {
        c10::DataPtr pointer(
            held[id], held[id], allocator->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
        allocator->recordStream(
            pointer,
            c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(stream), 0));
        pointer.release_context();
      }
    } else {
      allocator->emptyCache();
    }
    auto stats = allocator->getDeviceStats(0);
    printf(
        "%s %zu %ld %ld %ld %ld %ld %ld %ld\n",
        request.c_str(),
        address,
        long(stats.allocated_bytes[0].current),
        long(stats.active_bytes[0].current),
        long(stats.requested_bytes[0].current),
        long(stats.reserved_bytes[0].current),
        long(stats.inactive_split_bytes[0].current),
        long(stats.num_alloc_retries),
        long(stats.num_ooms));
  }
  auto snapshot = allocator->snapshot();
  static const char* const actions[] = {
      "alloc",
      "free_requested",
      "free_completed",
      "segment_alloc",
      "segment_free",
      "segment_map",
      "segment_unmap",
      "snapshot",
      "oom",
      "annotate"};
  for (const auto& entry : snapshot.device_traces.at(0))
    printf(
        "history %s %zu %zu %zu\n",
        actions[entry.action_],
        entry.addr_,
        entry.size_,
        reinterpret_cast<size_t>(entry.stream_));
  for (const auto& segment : snapshot.segments) {
    size_t address = segment.address;
    for (const auto& block : segment.blocks) {
      const char* state = block.allocated ? "active_allocated"
          : block.active                  ? "active_awaiting_free"
                                          : "inactive";
      printf("block %zu %zu %s\n", address, block.size, state);
      address += block.size;
    }
  }
  fflush(stdout);
  _exit(0); // static destructors would ask a device
}
