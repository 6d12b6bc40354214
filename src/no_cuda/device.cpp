// In place of src/device/: there is no device.
#include "device/gpu.hpp"
#include "no_cuda/absent.hpp"

namespace megamoe::device {

DriverFacts driver_facts() {
  return {};
}
std::vector<DeviceFacts> device_facts() {
  return {};
}
int usable_devices() {
  return 0;
}

void check_usable(int) {
  fail_without_cuda();
}
int multiprocessors() {
  fail_without_cuda();
}
void use_device(int) {
  fail_without_cuda();
}
CurrentDevice::CurrentDevice(int) {
  fail_without_cuda();
}
CurrentDevice::~CurrentDevice() {
  (void)before_;  // clang sees that nothing here uses it
}
void enable_peer_access(int) {
  fail_without_cuda();
}
void enable_peer_access(const std::vector<int>&) {
  fail_without_cuda();
}
std::int64_t free_bytes() {
  fail_without_cuda();
}
void wait_for_device() {
  fail_without_cuda();
}

// Nothing can be made of these, so nothing is there to be used or freed.
Memory::Memory(std::int64_t, std::string_view) {
  fail_without_cuda();
}
void Memory::Free::operator()(std::byte*) const {}
void Memory::fill(int) {
  fail_without_cuda();
}
void Memory::copy_from(const void*, std::int64_t, std::int64_t) {
  fail_without_cuda();
}
void Memory::copy_to(void*, std::int64_t, std::int64_t) const {
  fail_without_cuda();
}

Stream::Stream() {
  fail_without_cuda();
}
void Stream::Destroy::operator()(StreamHandle) const {}
void Stream::wait() const {
  fail_without_cuda();
}
void Stream::copy(void*, const void*, std::int64_t) const {
  fail_without_cuda();
}
bool is_capturing(StreamHandle) {
  fail_without_cuda();
}

Event::Event() {
  fail_without_cuda();
}
void Event::Destroy::operator()(CUevent_st*) const {}
void Event::record(StreamHandle) {
  fail_without_cuda();
}
void Event::hold(StreamHandle) const {
  fail_without_cuda();
}
bool Event::over() const {
  fail_without_cuda();
}
double Event::microseconds_since(const Event&) const {
  fail_without_cuda();
}

Graph::Graph(const Stream&, const std::function<void()>&) {
  fail_without_cuda();
}
void Graph::Destroy::operator()(CUgraphExec_st*) const {}
void Graph::launch(StreamHandle) const {
  fail_without_cuda();
}

}  // namespace megamoe::device
