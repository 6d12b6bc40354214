#include "symmetric/channel.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "symmetric/shared_file.hpp"
#include "symmetric/support.hpp"

namespace megamoe::testing_symmetric {
namespace {

struct Pair {
  Pair() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    near.emplace(FileDescriptor(ends[0]));
    far.emplace(FileDescriptor(ends[1]));
  }
  std::optional<Channel> near;
  std::optional<Channel> far;
};

TEST(Channel, AMessageOfManyPacketsArrivesWhole) {
  Pair pair;
  std::vector<std::byte> data(5000000);
  for (std::size_t n = 0; n < data.size(); ++n) data[n] = static_cast<std::byte>(n * 7 + n / 1000);
  Channel::State sent = Channel::State::blocked;
  std::thread sender([&] { sent = pair.near->send(MessageKind::payload, data, {}, Deadline(0s)); });
  Message message;
  while (pair.far->receive(message) != Channel::State::complete) std::this_thread::yield();
  sender.join();
  EXPECT_EQ(sent, Channel::State::complete);
  EXPECT_TRUE(message.data == data);
}

TEST(Channel, AFileArrivesOpenAndTheSame) {
  Pair pair;
  const FileDescriptor file = make_shared_file("test", 12345);
  const int files[] = {file.get()};
  ASSERT_EQ(pair.near->send(MessageKind::payload, bytes_of("x"), files, Deadline(5s)),
            Channel::State::complete);
  Message message;
  ASSERT_EQ(pair.far->receive(message), Channel::State::complete);
  ASSERT_EQ(message.files.size(), 1u);
  struct stat mine {};
  struct stat theirs {};
  ASSERT_EQ(fstat(file.get(), &mine), 0);
  ASSERT_EQ(fstat(message.files[0].get(), &theirs), 0);
  EXPECT_EQ(mine.st_ino, theirs.st_ino);
  EXPECT_NE(fcntl(message.files[0].get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Channel, WhatWasSaidBeforeTheEndIsHeard) {
  Pair pair;
  pair.far->send(MessageKind::payload, bytes_of("unread"), {}, Deadline(5s));
  pair.near->send(make_failure(Error(ErrorCode::io, "out of ink")), Deadline(5s));
  pair.near.reset();
  Message message;
  ASSERT_EQ(pair.far->receive(message), Channel::State::complete);
  EXPECT_TRUE(says(read_failure(message), ErrorCode::io, {"out of ink"}));
  EXPECT_EQ(pair.far->receive(message), Channel::State::closed);
  EXPECT_EQ(pair.far->send(message, Deadline(5s)), Channel::State::closed);
}

TEST(Channel, SendingToOneThatDoesNotReadEndsAtTheDeadline) {
  Pair pair;
  const std::vector<std::byte> data(5000000);
  EXPECT_EQ(pair.near->send(MessageKind::payload, data, {}, Deadline(50ms)),
            Channel::State::blocked);
}

TEST(SharedFile, CannotBeResizedByAPeer) {
  const FileDescriptor file = make_shared_file("test", 8192);
  EXPECT_NE(ftruncate(file.get(), 4096), 0);
  EXPECT_NE(ftruncate(file.get(), 16384), 0);
}

}  // namespace
}  // namespace megamoe::testing_symmetric
