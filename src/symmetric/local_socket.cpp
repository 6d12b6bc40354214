// Names, listeners and connections of local sockets, and how failures are written.

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>

#include "base/check.hpp"
#include "symmetric/channel.hpp"

namespace megamoe {
namespace {

constexpr int kSocketType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

struct Address {
  sockaddr_un value{};
  socklen_t length = 0;

  explicit Address(const std::string& name) {
    // The leading zero byte makes the name abstract.
    check_argument(name.size() < sizeof(value.sun_path),
                   "the name of a local socket has at most {} bytes, got {}",
                   sizeof(value.sun_path) - 1, name.size());
    value.sun_family = AF_UNIX;
    std::memcpy(value.sun_path + 1, name.data(), name.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }
};

FileDescriptor make_socket() {
  FileDescriptor made(socket(AF_UNIX, kSocketType, 0));
  if (!made) fail(ErrorCode::io, "cannot make a local socket: {}", std::strerror(errno));
  return made;
}

}  // namespace

FileDescriptor listen_at(const std::string& name) {
  const Address address(name);
  FileDescriptor listener = make_socket();
  if (bind(listener.get(), address.get(), address.length) != 0) {
    if (errno == EADDRINUSE) {
      fail(ErrorCode::mismatch,
           "somebody listens at '{}' already: two processes claim rank 0, or another group forms "
           "with the same rendezvous: give each group its own",
           name);
    }
    fail(ErrorCode::io, "cannot bind a local socket to '{}': {}", name, std::strerror(errno));
  }
  if (listen(listener.get(), SOMAXCONN) != 0) {
    fail(ErrorCode::io, "cannot listen at '{}': {}", name, std::strerror(errno));
  }
  return listener;
}

std::optional<Channel> accept_from(const FileDescriptor& listener) {
  FileDescriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) return Channel(std::move(socket));
  if (errno == EMFILE || errno == ENFILE) {
    fail(ErrorCode::io,
         "no descriptor is left for another rank: raise the limit of open files "
         "(ulimit -n)");
  }
  return std::nullopt;
}

std::optional<Channel> connect_to(const std::string& name) {
  const Address address(name);
  FileDescriptor socket = make_socket();
  if (connect(socket.get(), address.get(), address.length) == 0) return Channel(std::move(socket));
  // EAGAIN: the listener's queue is full.
  if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return std::nullopt;
  fail(ErrorCode::io, "cannot connect to '{}': {}", name, std::strerror(errno));
}

Message make_failure(const Error& error) {
  const std::string_view text = error.what();
  const auto code = static_cast<std::uint32_t>(error.code());
  Message message{MessageKind::failure, std::vector<std::byte>(sizeof(code) + text.size()), {}};
  std::memcpy(message.data.data(), &code, sizeof(code));
  std::memcpy(message.data.data() + sizeof(code), text.data(), text.size());
  return message;
}

Error read_failure(const Message& message) {
  auto code = static_cast<std::uint32_t>(ErrorCode::internal);
  if (message.data.size() < sizeof(code)) return {ErrorCode::internal, "a failure without words"};
  std::memcpy(&code, message.data.data(), sizeof(code));
  code = std::min(code, static_cast<std::uint32_t>(ErrorCode::internal));
  return {static_cast<ErrorCode>(code),
          std::string(reinterpret_cast<const char*>(message.data.data()) + sizeof(code),
                      message.data.size() - sizeof(code))};
}

}  // namespace megamoe
