// A CUDA runtime and driver without a device: memory is an amount that runs out, and addresses.
// Preloaded, it lets the allocator that torch ships run anywhere. FAKE_CAPACITY is in bytes.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace {

constexpr size_t kPage = 2 << 20;

size_t capacity() {
  static const size_t bytes = strtoull(getenv("FAKE_CAPACITY"), nullptr, 10);
  return bytes;
}

size_t used = 0;
size_t next_address = size_t(1) << 40;
cudaError_t last_error = cudaSuccess;
std::map<size_t, size_t> segments;
std::map<CUmemGenericAllocationHandle, size_t> handles;

size_t whole_pages(size_t bytes) {
  return (bytes + kPage - 1) & ~(kPage - 1);
}

size_t reserve(size_t bytes) {
  size_t address = next_address;
  next_address += whole_pages(bytes) + kPage;
  return address;
}

CUresult address_reserve(CUdeviceptr* at, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  *at = reserve(bytes);
  return CUDA_SUCCESS;
}

CUresult address_free(CUdeviceptr, size_t) {
  return CUDA_SUCCESS;
}

CUresult create(
    CUmemGenericAllocationHandle* handle,
    size_t bytes,
    const CUmemAllocationProp*,
    unsigned long long) {
  static CUmemGenericAllocationHandle next = 1;
  if (used + bytes > capacity())
    return CUDA_ERROR_OUT_OF_MEMORY;
  used += bytes;
  *handle = next++;
  handles[*handle] = bytes;
  return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle) {
  used -= handles[handle];
  handles.erase(handle);
  return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr, size_t) {
  return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return CUDA_SUCCESS;
}

CUresult attribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult device(CUdevice* found, int) {
  *found = 0;
  return CUDA_SUCCESS;
}

CUresult not_supported() {
  return CUDA_ERROR_NOT_SUPPORTED;
}

} // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* index) {
  *index = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *total = capacity();
  *free_bytes = capacity() - used;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  memset(properties, 0, sizeof(*properties));
  strcpy(properties->name, "fake");
  properties->totalGlobalMem = capacity();
  properties->major = 8;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** at, size_t bytes) {
  if (used + whole_pages(bytes) > capacity())
    return last_error = cudaErrorMemoryAllocation;
  used += whole_pages(bytes);
  size_t address = reserve(bytes);
  segments[address] = bytes;
  *at = reinterpret_cast<void*>(address);
  return cudaSuccess;
}
cudaError_t cudaFree(void* at) {
  auto found = segments.find(reinterpret_cast<size_t>(at));
  if (found != segments.end()) {
    used -= whole_pages(found->second);
    segments.erase(found);
  }
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t,
    cudaStreamCaptureStatus* status,
    unsigned long long*,
    cudaGraph_t*,
    const cudaGraphNode_t**,
    const cudaGraphEdgeData**,
    size_t*) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
// Other streams are never done before somebody waits for them.
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = static_cast<cudaEvent_t>(malloc(8));
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  return last_error = cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) {
  return "fake";
}
const char* cudaGetErrorString(cudaError_t) {
  return "fake";
}
cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name,
    void** entry,
    unsigned,
    unsigned long long,
    cudaDriverEntryPointQueryResult* result) {
  static const std::map<std::string, void*> known = {
      {"cuMemAddressReserve", reinterpret_cast<void*>(address_reserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(address_free)},
      {"cuMemCreate", reinterpret_cast<void*>(create)},
      {"cuMemRelease", reinterpret_cast<void*>(release)},
      {"cuMemMap", reinterpret_cast<void*>(map)},
      {"cuMemUnmap", reinterpret_cast<void*>(unmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(set_access)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(attribute)},
      {"cuDeviceGet", reinterpret_cast<void*>(device)},
  };
  auto found = known.find(name);
  *entry = found == known.end() ? reinterpret_cast<void*>(not_supported) : found->second;
  if (result)
    *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// Of the management library only what expandable segments ask for.
int nvmlInit_v2() {
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** found) {
  *found = reinterpret_cast<void*>(1);
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned, void** found) {
  *found = reinterpret_cast<void*>(1);
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType() {
  return 3; // not supported
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2() {
  return 3;
}
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return 0;
}

} // extern "C"
