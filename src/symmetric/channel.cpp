#include "symmetric/channel.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "base/check.hpp"

namespace megamoe {
namespace {

// Well below the socket buffers that systems come with (208 KiB).
constexpr std::size_t kPacketBytes = 32 << 10;
constexpr std::uint32_t kMagic = 0x4d6d6f45;
constexpr auto kPollSlice = std::chrono::milliseconds(100);

struct Header {
  std::uint32_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
};

constexpr std::size_t kControlBytes = CMSG_SPACE(kMaxMessageFiles * sizeof(int));

/// Takes ownership of the descriptors that came with a packet.
void take_files(msghdr& message, std::vector<FileDescriptor>& files) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t n = 0; n < count; ++n) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(part) + n * sizeof(int), sizeof(int));
      files.emplace_back(file);
    }
  }
}

void put_files(msghdr& message, std::span<const int> files, std::span<std::byte> control) {
  if (files.empty()) return;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(files.size_bytes());
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(files.size_bytes());
  std::memcpy(CMSG_DATA(part), files.data(), files.size_bytes());
}

ucred credentials(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    fail(ErrorCode::io, "cannot ask who is at the other end of a local socket: {}",
         std::strerror(errno));
  }
  return peer;
}

}  // namespace

pid_t Channel::peer_process() const {
  return credentials(descriptor()).pid;
}
uid_t Channel::peer_user() const {
  return credentials(descriptor()).uid;
}

Channel::State Channel::reject(std::string trouble) {
  trouble_ = std::move(trouble);
  return State::garbage;
}

Channel::State Channel::receive(Message& message) {
  State state = State::blocked;
  do {
    state = receive_packet();
    if (state != State::complete) return state;
  } while (incoming_->data.size() < incoming_bytes_);
  message = std::move(*incoming_);
  incoming_.reset();
  return State::complete;
}

Channel::State Channel::receive_packet() {
  std::array<std::byte, kPacketBytes> packet;
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control;
  iovec part{packet.data(), packet.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = -1;
  // A reset is reported once, before what the other end had sent: that is still to be read.
  do {
    got = recvmsg(descriptor(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::blocked;
  if (got <= 0) return State::closed;
  take_files(header, files_);
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    return reject("files were lost on the way: raise the limit of open files (ulimit -n)");
  }
  if ((header.msg_flags & MSG_TRUNC) != 0) return reject("a packet that is too long");
  const std::span<const std::byte> bytes(packet.data(), static_cast<std::size_t>(got));
  return incoming_ ? take_data(bytes) : take_header(bytes);
}

Channel::State Channel::take_header(std::span<const std::byte> packet) {
  Header header;
  if (packet.size() != sizeof(header)) return reject("a message without a header");
  std::memcpy(&header, packet.data(), sizeof(header));
  if (header.magic != kMagic) return reject("a message with a foreign header");
  if (header.bytes > static_cast<std::uint64_t>(kMaxMessageBytes)) {
    return reject(fmt::format("a message of {} bytes", header.bytes));
  }
  if (header.files != files_.size()) {
    return reject(fmt::format("{} files where {} were announced", files_.size(), header.files));
  }
  incoming_.emplace();
  incoming_->kind = static_cast<MessageKind>(header.kind);
  incoming_->files = std::exchange(files_, {});
  incoming_bytes_ = header.bytes;
  return State::complete;
}

Channel::State Channel::take_data(std::span<const std::byte> packet) {
  if (packet.size() > incoming_bytes_ - incoming_->data.size() || !files_.empty()) {
    return reject("a message that is longer than announced");
  }
  incoming_->data.insert(incoming_->data.end(), packet.begin(), packet.end());
  return State::complete;
}

Channel::State Channel::send(const Message& message, const Deadline& deadline) const {
  std::vector<int> files;
  for (const FileDescriptor& file : message.files) files.push_back(file.get());
  return send(message.kind, message.data, files, deadline);
}

Channel::State Channel::send(MessageKind kind, std::span<const std::byte> data,
                             std::span<const int> files, const Deadline& deadline) const {
  const Header header{kMagic, static_cast<std::uint32_t>(kind), data.size(), files.size()};
  State state = send_packet(std::as_bytes(std::span(&header, 1)), files, deadline);
  while (state == State::complete && !data.empty()) {
    const auto packet = data.first(std::min(data.size(), kPacketBytes));
    state = send_packet(packet, {}, deadline);
    data = data.subspan(packet.size());
  }
  return state;
}

Channel::State Channel::send_packet(std::span<const std::byte> packet, std::span<const int> files,
                                    const Deadline& deadline) const {
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  put_files(header, files, control);
  while (true) {
    if (sendmsg(descriptor(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return State::complete;
    const int error = errno;
    if (error == EINTR) continue;
    // Files under way count against a limit of the user; it falls as the others receive theirs.
    const bool crowded = error == ETOOMANYREFS || error == ENOBUFS || error == ENOMEM;
    if (!crowded && error != EAGAIN && error != EWOULDBLOCK) return State::closed;
    if (deadline.expired()) return State::blocked;
    if (crowded) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pollfd ready{descriptor(), POLLOUT, 0};
    poll(&ready, 1, deadline.milliseconds_left(kPollSlice));
  }
}

}  // namespace megamoe
