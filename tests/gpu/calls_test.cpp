// Calls on CUDA devices: ranks that share one, streams, graphs, errors and what comes after them.
#include <array>
#include <thread>

#include "gpu/gpu_layer.hpp"

namespace megamoe::test {
namespace {

using GpuCalls = GpuTest;

/// Runs work(rank, group) in one thread per rank; the message of each rank's error, "" for none.
std::vector<std::string> on_ranks(const std::vector<int>& devices, const GroupOptions& options,
                                  const std::function<void(int, const Group&)>& work) {
  std::vector<Group> groups = Group::devices(devices, options);
  std::vector<std::string> messages(devices.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    threads.emplace_back([&, rank, group = std::move(groups[rank])] {
      try {
        device::use_device(devices[rank]);
        work(static_cast<int>(rank), group);
      } catch (const std::exception& error) {
        messages[rank] = error.what();
      }
    });
  }
  groups.clear();
  for (std::thread& thread : threads) thread.join();
  return messages;
}

/// The layers of all ranks, made by a thread each, for one thread to drive.
std::vector<std::unique_ptr<Layer>> layers_of(const std::vector<Group>& groups,
                                              const LayerConfig& config,
                                              const LayerWeights& weights) {
  std::vector<std::unique_ptr<Layer>> layers(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back(
        [&, rank] { layers[rank] = std::make_unique<Layer>(config, weights, groups[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return layers;
}

TEST_F(GpuCalls, RanksThatShareADeviceGiveTheBitsOfOneAlone) {
  const LayerConfig config = gpu_config();
  const LayerWeights weights = gpu_weights(config);
  Layer alone(config, weights, Group::device(0, quick()));
  GpuIo io(config);
  std::vector<std::vector<BFloat16>> expected;
  for (int rank = 0; rank < 3; ++rank) {
    expected.push_back(run(alone, io, cli::synthetic_input(config, 9, rank, 20 + 60 * rank)));
  }
  const auto messages = on_ranks({0, 0, 0}, quick(), [&](int rank, const Group& group) {
    EXPECT_EQ(group.backend(), Backend::cuda);
    EXPECT_EQ(group.ranks(), 3);
    GpuIo mine(config);
    Layer layer(config, weights, group);
    Layer second(config, weights, group);
    EXPECT_EQ(layer.batch(1).x.data(), second.batch(1).x.data()) << "one arena for both";
    for (int call = 0; call < 20; ++call) {
      Layer& called = call % 3 == 2 ? second : layer;
      const Input input = cli::synthetic_input(config, 9, rank, 20 + 60 * rank);
      const Batch batch = mine.load(called, input);
      const auto execution = std::array{Execution::fused, Execution::split,
                                        Execution::staged}[static_cast<std::size_t>(call / 3 % 3)];
      called.forward(batch, mine.y(batch.tokens), execution);
      EXPECT_EQ(difference(mine.read(batch.tokens), expected[static_cast<std::size_t>(rank)],
                           config.hidden),
                "")
          << "rank " << rank << " call " << call;
    }
  });
  for (const std::string& message : messages) EXPECT_EQ(message, "");
}

TEST_F(GpuCalls, OneThreadDrivesAllRanksByStreams) {
  const LayerConfig config = gpu_config();
  const LayerWeights weights = gpu_weights(config);
  const std::vector<Group> groups = Group::devices({0, 0}, quick());
  const auto layers = layers_of(groups, config, weights);
  std::vector<std::unique_ptr<GpuIo>> io;
  for (int rank = 0; rank < 2; ++rank) io.push_back(std::make_unique<GpuIo>(config));
  for (int call = 0; call < 5; ++call) {
    std::vector<Input> inputs;
    std::vector<Batch> batches;
    for (int rank = 0; rank < 2; ++rank) {
      inputs.push_back(cli::synthetic_input(config, 30u + call, rank, 70 + 50 * rank));
      batches.push_back(io[rank]->load(*layers[rank], inputs[rank]));
    }
    for (int rank = 0; rank < 2; ++rank) {
      layers[rank]->forward(batches[rank], io[rank]->y(batches[rank].tokens),
                            io[rank]->stream().get());
    }
    while (!layers[0]->poll()) std::this_thread::yield();
    layers[1]->wait();
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(
          against_reference(config, weights, inputs[rank], io[rank]->read(batches[rank].tokens)),
          "");
    }
  }
}

TEST_F(GpuCalls, AGraphReplaysWithNewRoutingOtherTokensAndNone) {
  const LayerConfig config = gpu_config();
  const LayerWeights weights = gpu_weights(config);
  const auto messages = on_ranks({0, 0}, quick(), [&](int rank, const Group& group) {
    GpuIo io(config);
    Layer layer(config, weights, group);
    std::vector<Graph> graphs;
    for (const Execution execution : {Execution::fused, Execution::split, Execution::staged}) {
      graphs.push_back(layer.graph({.execution = execution, .y = io.whole_y()}));
    }
    for (std::int64_t call = 0; call < 18; ++call) {
      const std::int64_t tokens =
          std::array{9, 0, 200, 3, 0, 17}[static_cast<std::size_t>(call % 6)];
      Graph& graph = graphs[static_cast<std::size_t>(call % 3)];
      const Input input =
          cli::synthetic_input(config, static_cast<std::uint64_t>(tokens), rank, tokens);
      Batch batch = io.load(layer, input);
      layer.forward(batch, io.y(tokens));
      const auto expected = io.read(tokens);
      // x and scales stand in the arena now; ids and weights too.
      io.poison();
      graph.replay(tokens);
      const auto all = io.read(config.max_tokens);
      const auto rows = static_cast<std::ptrdiff_t>(tokens * config.hidden);
      EXPECT_EQ(difference(expected, {all.begin(), all.begin() + rows}, config.hidden), "");
      EXPECT_TRUE(std::all_of(all.begin() + rows, all.end(), [](BFloat16 value) {
        return value.bits == 0xFFFF;
      })) << "rows beyond the tokens were touched";
      EXPECT_EQ(layer.report().tokens, tokens);
    }
  });
  for (const std::string& message : messages) EXPECT_EQ(message, "");
}

TEST_F(GpuCalls, ACallersOwnGraphReadsTheNumberOfTokensFromDeviceMemory) {
  const LayerConfig config = gpu_config();
  const LayerWeights weights = gpu_weights(config);
  Layer layer(config, weights, Group::device(0, quick()));
  GpuIo io(config);
  device::Memory word(4, "tokens");
  Batch whole = layer.batch(64);  // what is expected
  whole.x_bf16 = io.x(config.max_tokens);
  const device::Graph graph(io.stream(), [&] {
    layer.forward_counted(word.as<std::int32_t>(), whole, io.whole_y(), io.stream().get());
  });
  for (const std::int32_t tokens : {90, 200, 0, 77, 100000}) {
    const std::int64_t kept = std::min<std::int64_t>(tokens, config.max_tokens);
    const Input input = cli::synthetic_input(config, static_cast<std::uint64_t>(tokens), 0, kept);
    io.load(layer, input);
    word.copy_from(&tokens, 4);
    io.poison();
    device::wait_for_device();
    graph.launch(io.stream().get());
    io.stream().wait();
    layer.wait();
    const auto all = io.read(config.max_tokens);
    const auto rows = static_cast<std::ptrdiff_t>(kept * config.hidden);
    if (kept > 0) {
      EXPECT_EQ(against_reference(config, weights, input, {all.begin(), all.begin() + rows}), "")
          << tokens;
    }
    EXPECT_TRUE(std::all_of(all.begin() + rows, all.end(), [](BFloat16 value) {
      return value.bits == 0xFFFF;
    })) << "rows beyond the tokens were touched";
  }
}

TEST_F(GpuCalls, AnIdBeyondTheExpertsIsNamedAndTheGroupStaysUsable) {
  const LayerConfig config = gpu_config();
  const LayerWeights weights = gpu_weights(config);
  Layer layer(config, weights, Group::device(0, quick()));
  GpuIo io(config);
  Input input = cli::synthetic_input(config, 5, 0, 80);
  const std::int64_t good = input.experts[4 * 4 + 2];
  input.experts[4 * 4 + 2] = config.experts;
  std::string message;
  EXPECT_EQ(code_of([&] { run(layer, io, input); }, message), ErrorCode::invalid_argument);
  EXPECT_NE(message.find("token 4, slot 2: expert 10"), std::string::npos) << message;
  input.experts[4 * 4 + 2] = good;
  EXPECT_EQ(against_reference(config, weights, input, run(layer, io, input)), "");
}

TEST_F(GpuCalls, ARankThatDoesNotComeIsNamedAndTheDeviceStaysUsable) {
  const LayerConfig config = gpu_config();
  const LayerWeights weights = gpu_weights(config);
  const auto groups = Group::devices({0, 0}, quick(std::chrono::milliseconds(100)));
  const auto layers = layers_of(groups, config, weights);
  GpuIo io(config);
  const Input input = cli::synthetic_input(config, 5, 0, 80);
  std::string message;
  EXPECT_EQ(code_of([&] { run(*layers[0], io, input); }, message), ErrorCode::deadline);
  EXPECT_NE(message.find("barrier A of rank 1"), std::string::npos) << message;
  EXPECT_EQ(code_of([&] { run(*layers[0], io, input); }, message), ErrorCode::deadline);
  EXPECT_NE(message.find("given up"), std::string::npos) << message;

  Layer next(config, weights, Group::device(0, quick()));
  EXPECT_EQ(against_reference(config, weights, input, run(next, io, input)), "");
}

TEST_F(GpuCalls, LayersCalledInOppositeOrderAreAnErrorThatNamesBoth) {
  const LayerConfig config = gpu_config();
  const LayerWeights weights = gpu_weights(config);
  const auto messages = on_ranks({0, 0}, quick(), [&](int rank, const Group& group) {
    GpuIo io(config);
    Layer first(config, weights, group);
    Layer second(config, weights, group);
    Layer& called = rank == 0 ? first : second;
    const Batch batch = io.load(called, cli::synthetic_input(config, 5, rank, 11));
    called.forward(batch, io.y(11));
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("layer 1"), std::string::npos) << message;
    EXPECT_NE(message.find("layer 2"), std::string::npos) << message;
  }
}

TEST_F(GpuCalls, RanksMeetInTheCallersSymmetricMemory) {
  const LayerConfig config = gpu_config();
  const LayerWeights weights = gpu_weights(config);
  const std::int64_t bytes = Group::peer_bytes(config, 2);
  std::vector<device::Memory> parts;
  PeerGroupOptions options{.bytes = bytes, .group = quick()};
  for (int rank = 0; rank < 2; ++rank) {
    parts.emplace_back(bytes, "a part");
    parts.back().fill(0);
    options.parts.push_back(parts.back().get());
  }
  device::wait_for_device();
  std::vector<std::string> messages(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank, mine = options]() mutable {
      try {
        mine.rank = rank;
        const Group group = Group::peers(mine);
        GpuIo io(config);
        Layer layer(config, weights, group, {.workers = 60});
        const Input input = cli::synthetic_input(config, 5, rank, 80 + rank);
        const Batch batch = io.load(layer, input);
        layer.forward(batch, io.y(batch.tokens));
        EXPECT_EQ(against_reference(config, weights, input, io.read(batch.tokens)), "");
        LayerConfig wider = config;
        wider.max_tokens *= 4;
        EXPECT_EQ(code_of([&] { Layer(wider, weights, group, {.workers = 60}); }, messages[rank]),
                  ErrorCode::out_of_memory);
        EXPECT_NE(messages[rank].find("peer_bytes"), std::string::npos) << messages[rank];
        messages[rank].clear();
      } catch (const std::exception& error) {
        messages[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& message : messages) EXPECT_EQ(message, "");
}

}  // namespace
}  // namespace megamoe::test
