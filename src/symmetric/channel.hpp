// Messages, with open files, between two processes of this host over a local socket.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "megamoe/error.hpp"

#include "symmetric/deadline.hpp"
#include "symmetric/file_descriptor.hpp"

namespace megamoe {

enum class MessageKind : std::uint32_t { hello = 1, welcome, payload, result, failure };

struct Message {
  MessageKind kind = MessageKind::hello;
  std::vector<std::byte> data;
  std::vector<FileDescriptor> files;
};

/// The most that one message carries: a payload from each of the most ranks there may be. Longer
/// ones are taken for garbage.
inline constexpr std::int64_t kMaxMessageBytes = std::int64_t{256} << 20;
/// The kernel passes at most 253 descriptors at once.
inline constexpr std::size_t kMaxMessageFiles = 250;

/// Failures travel as messages.
Message make_failure(const Error& error);
Error read_failure(const Message& message);

/// One end of a connection (SOCK_SEQPACKET: packets keep their bounds). A message is a packet with
/// kind, length and files, then packets of data.
class Channel {
 public:
  enum class State {
    complete,  ///< the whole message has passed
    blocked,   ///< receive: not all of it is here yet; send: the deadline passed
    closed,    ///< the other end is gone
    garbage,   ///< what came is no message of ours; trouble() says what
  };

  explicit Channel(FileDescriptor socket) : socket_(std::move(socket)) {}

  int descriptor() const { return socket_.get(); }
  /// Who is at the other end, as the kernel vouches.
  pid_t peer_process() const;
  uid_t peer_user() const;

  /// Takes what has arrived, without waiting; `message` is valid after State::complete.
  State receive(Message& message);

  /// Waits until the other end has room.
  State send(MessageKind kind, std::span<const std::byte> data, std::span<const int> files,
             const Deadline& deadline) const;
  State send(const Message& message, const Deadline& deadline) const;

  const std::string& trouble() const { return trouble_; }

 private:
  State receive_packet();
  State take_header(std::span<const std::byte> packet);
  State take_data(std::span<const std::byte> packet);
  State reject(std::string trouble);
  State send_packet(std::span<const std::byte> packet, std::span<const int> files,
                    const Deadline& deadline) const;

  FileDescriptor socket_;
  std::optional<Message> incoming_;
  std::size_t incoming_bytes_ = 0;  // of data, in all
  std::vector<FileDescriptor> files_;
  std::string trouble_;
};

/// A socket that listens at a name of the abstract namespace, which vanishes with it.
/// Throws Error{mismatch} if somebody else listens there, Error{io}.
FileDescriptor listen_at(const std::string& name);

/// A connection that waits at a listener, if there is one.
std::optional<Channel> accept_from(const FileDescriptor& listener);

/// A connection to the listener at `name`; nothing if nobody listens, or has no time now.
/// Throws Error{io}.
std::optional<Channel> connect_to(const std::string& name);

}  // namespace megamoe
