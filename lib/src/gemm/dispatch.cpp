#include "gemm/dispatch.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>

#include "runtime/queue.hpp"

namespace funlib {
namespace {

// ---- tuned choices ---------------------------------------------------------------------------

struct Tuned {
  GemmProblem problem;
  const GemmKernel* kernel;
  ParameterValues values;
  // Nothing was faster than what the model takes. For other shapes that says: ask the model.
  bool agrees_with_model;

  bool is_for(const GemmProblem& other) const {
    return problem.m == other.m && problem.n == other.n && problem.k == other.k &&
           problem.batches == other.batches && problem.transpose_a == other.transpose_a &&
           problem.transpose_b == other.transpose_b;
  }
};

// What was measured on one device.
class TuningTable {
 public:
  void add(Tuned entry) {
    for (auto& known : entries_)
      if (known.problem.key() == entry.problem.key()) {
        known = std::move(entry);
        return;
      }
    entries_.push_back(std::move(entry));
  }
  void clear() { entries_.clear(); }
  size_t size() const { return entries_.size(); }

  // The entry for the nearest shape that can do the problem, if it is near: an extent more than twice
  // as large or small says little.
  const Tuned* nearest(const GemmProblem& problem, const Device& device) const {
    std::vector<std::pair<double, const Tuned*>> near;
    for (const auto& entry : entries_)
      if (const auto far = distance(entry.problem, problem)) near.emplace_back(*far, &entry);
    std::stable_sort(near.begin(), near.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [far, entry] : near)
      if (entry->kernel->objection(problem, entry->values, device).empty()) return entry;
    return nullptr;
  }

 private:
  static std::optional<double> distance(const GemmProblem& a, const GemmProblem& b) {
    if (a.dtype != b.dtype || a.precision != b.precision) return std::nullopt;
    const int64_t pairs[][2] = {{a.m, b.m}, {a.n, b.n}, {a.k, b.k}, {a.batches, b.batches}};
    double total = 0;
    for (const auto& [x, y] : pairs) {
      const double octaves =
          std::abs(std::log2(double(std::max<int64_t>(x, 1)) / double(std::max<int64_t>(y, 1))));
      if (octaves > 1) return std::nullopt;
      total += octaves;
    }
    constexpr double other_layout = 0.5;
    return total +
           other_layout * ((a.transpose_a != b.transpose_a) + (a.transpose_b != b.transpose_b));
  }

  std::vector<Tuned> entries_;
};

// ---- the model -------------------------------------------------------------------------------

struct Candidate {
  const char* kernel;
  std::string parameters;
  std::string reason;
};

// A way to cut a float32 product for gemm_pipelined, and how fast a compute unit then is: as a share of
// its multiply-adds, with one work-group on it and with as many as keep it busy. Measured on an H200.
struct Cut {
  int64_t tile_m, tile_n;
  double alone, busy;
  int64_t groups;  // that keep a unit busy
  const char* parameters;
};
constexpr Cut cuts[] = {
    {64, 128, 0.25, 0.78, 4, ""},
    {64, 128, 0.70, 0.76, 2, "BLOCK_M=8 LANES_M=8 PARTS=4"},
    {64, 64, 0.66, 0.72, 2, "TILE_N=64 TILE_K=16 BLOCK_M=8 LANES_M=8 TEAMS_K=2 PARTS=2"},
    {32, 64, 0.62, 0.69, 2, "TILE_M=32 TILE_N=64 TILE_K=32 BLOCK_M=8 TEAMS_K=4 PARTS=2"},
    {32, 32, 0.55, 0.55, 1, "TILE_M=32 TILE_N=32 TILE_K=32 BLOCK_M=8 BLOCK_N=4 TEAMS_K=4 PARTS=2"},
};

// The cut with which the unit that has most to do is done first.
const Cut& best_cut(const GemmProblem& problem, int64_t units) {
  const Cut* best = nullptr;
  double least = 0;
  for (const Cut& cut : cuts) {
    const int64_t all =
        tiles(problem.m, cut.tile_m) * tiles(problem.n, cut.tile_n) * problem.batches;
    const int64_t most = tiles(all, units), last = most % cut.groups;
    double time = double(most - last) / cut.busy;
    if (last > 0)
      time += double(last) / (cut.alone + (cut.busy - cut.alone) * double(last - 1) /
                                              double(std::max<int64_t>(cut.groups - 1, 1)));
    time *= double(cut.tile_m * cut.tile_n);
    if (best == nullptr || time < least) {
      best = &cut;
      least = time;
    }
  }
  return *best;
}

// gemm_pipelined, cut as is best for float32; with slices of K where that is long and tiles are few.
Candidate pipelined(const GemmProblem& problem, int64_t units) {
  if (problem.dtype != FUNLIB_FLOAT32)
    return {"gemm_pipelined", "", "tiles copied while others are multiplied"};
  constexpr int64_t thinnest = 512;
  const Cut& cut = best_cut(problem, units);
  const int64_t all = tiles(problem.m, cut.tile_m) * tiles(problem.n, cut.tile_n) * problem.batches;
  std::string parameters = cut.parameters;
  const int64_t most = std::min(units / all, problem.k / thinnest);
  for (const int64_t slices : {32, 16, 8, 4, 2})
    if (slices <= most) {
      parameters += concat(parameters.empty() ? "" : " ", "SLICES=", slices);
      break;
    }
  return {"gemm_pipelined", parameters,
          concat(all, " tiles of ", cut.tile_m, "x", cut.tile_n, " keep ", units,
                 " compute units most evenly busy")};
}

// Hopper's kernel for the type, with the largest tiles of which there is one for every other compute unit,
// and which are not half empty; with slices of K where that is long and tiles are few. Nothing for other
// devices and products.
void add_hopper(std::vector<Candidate>& found, const GemmProblem& problem, const Device& device) {
  const auto& info = device.info();
  const int64_t bytes = dtype_of(problem.dtype).itemsize;
  const GemmKernel& kernel = gemm_kernel(bytes == 8 ? "gemm_mma_float64" : "gemm_wgmma");
  // Both of K along lines: nothing has to come from registers.
  const bool along = problem.transpose_b && !problem.transpose_a;
  const std::vector<const char*> sizes =
      bytes == 8
          ? std::vector<const char*>{"", "COLUMNS=64 STAGES=6", "ROWS=32 COLUMNS=64 STAGES=6"}
      : bytes == 2
          ? std::vector<const char*>{"", "COLUMNS=128 STAGES=6", "WARP_GROUPS=1 COLUMNS=128",
                                     "WARP_GROUPS=1 COLUMNS=64 STAGES=8"}
      : along ? std::vector<const char*>{"ROWS=64 COLUMNS=256", "", "WARP_GROUPS=1",
                                         "WARP_GROUPS=1 ROWS=64 COLUMNS=64 STAGES=8"}
              : std::vector<const char*>{"", "WARP_GROUPS=1", "WARP_GROUPS=1 COLUMNS=64 STAGES=8"};
  std::string smallest, reason;
  int64_t count = 0;
  for (const char* const size : sizes) {
    const auto values = kernel.parse(size, kernel.values_for(problem.dtype, device));
    if (!kernel.objection(problem, values, device).empty()) continue;
    const GemmPlan plan = kernel.plan(values, problem, info);
    count =
        tiles(problem.m, plan.tile_rows) * tiles(problem.n, plan.tile_columns) * problem.batches;
    smallest = size;
    reason = concat(count, " tiles of ", plan.tile_rows, "x", plan.tile_columns,
                    " for matrix engines that bulk copies feed");
    const bool half_empty = plan.tile_rows >= 2 * problem.m || plan.tile_columns >= 2 * problem.n;
    if (2 * count >= info.compute_units && !half_empty) break;
  }
  // Slices are the work of a cluster, whose compute units are neighbours: of clusters of more than
  // three, fewer than the units would hold find a place at once. Bytes of K.
  constexpr int64_t shortest = 2048;
  for (const int64_t slices : {8, 6, 4, 3, 2}) {
    const int64_t room = slices > 3 ? info.compute_units * 7 / 8 : info.compute_units;
    if (count > 0 && count * slices <= room && problem.k * bytes >= slices * shortest) {
      smallest += concat(smallest.empty() ? "" : " ", "SLICES=", slices);
      break;
    }
  }
  if (!reason.empty()) found.push_back({kernel.name, smallest, reason});
}

// NVIDIA's matrix engines where tiles are few: teams of sub-groups share K, with as many stages as find room.
void add_engine_teams(std::vector<Candidate>& found, const GemmProblem& problem,
                      const std::string& parameters, const std::string& reason) {
  const int64_t depth = std::min<int64_t>(512 / dtype_of(problem.dtype).itemsize, 256);
  for (const int64_t stages : {4, 3, 2})
    found.push_back({"gemm_matrix_engine",
                     concat(parameters, " TILE_K=", depth, " TEAMS_K=8 STAGES=", stages), reason});
}

// Parameters of gemv_strips: strips as wide as leaves few compute units idle, and as many steps and
// sub-groups as registers and local memory hold.
std::string strips(const GemmProblem& problem, int64_t units) {
  const int64_t bytes = dtype_of(problem.dtype).itemsize;
  const bool wide = 2 * tiles(problem.n * bytes, 128) * problem.batches > units;
  const int64_t rows = problem.m <= 2 ? problem.m : problem.m <= 4 ? 4 : 8;
  std::string parameters = concat("ROWS=", rows);
  if (wide) parameters += " WIDTH=8";
  if (rows < 8 || bytes == 2 || (bytes == 4 && wide)) parameters += " STEPS=8";
  if (bytes == 8 || (bytes == 2 && rows < 8)) parameters += " SUB_GROUPS=16";
  return parameters;
}

// Parameters of gemv_dots: all rows of A together as far as registers hold their sums, and sub-groups
// enough to keep the device busy.
std::string dots(const GemmProblem& problem, int64_t units) {
  const int64_t bytes = dtype_of(problem.dtype).itemsize;
  const int64_t most = bytes == 8 ? 8 : 16;
  int64_t rows = 1;
  while (rows < std::min(problem.m, most)) rows *= 2;
  int64_t columns = 4;
  while (columns > 1 && tiles(problem.n, columns) * problem.batches < 2 * units) columns /= 2;
  const bool few = tiles(problem.n, columns) * problem.batches < 2 * units;
  const int64_t sub_groups = few ? 16 : rows >= 8 && bytes == 4 ? 2 : 4;
  return concat("ROWS=", rows, " COLUMNS=", columns, " SUB_GROUPS=", sub_groups);
}

// As add_engine_teams, for few rows of two bytes or less and a B of whole vectors.
void add_few_rows_engine(std::vector<Candidate>& found, const GemmProblem& problem, int64_t units,
                         const std::string& reason) {
  constexpr int64_t most_rows = 16, shortest = 512;
  const int64_t bytes = dtype_of(problem.dtype).itemsize;
  const auto groups = [&](int64_t width) { return tiles(problem.n, width) * problem.batches; };
  if (problem.m > most_rows || problem.k < shortest || 4 * groups(32) <= units || bytes > 2 ||
      !problem.aligned_a || !problem.has_vectors_b())
    return;
  // Lines of a tile of transposed A are whole vectors.
  const bool eight = problem.m <= 8 && !(problem.transpose_a && bytes == 1);
  add_engine_teams(found, problem,
                   concat(eight ? "ENGINE_M=8 ENGINE_N=32 SUB_M=8 SUB_N=32 TILE_M=8"
                                : "SUB_M=16 SUB_N=32 TILE_M=16",
                          " TILE_N=", groups(64) >= units ? 64 : 32),
                   reason);
}

// Below these, most of a tile would lie outside the matrix.
constexpr int64_t few = 8;

// Whether Hopper's kernels come before those for few rows, where these read B more than once or a transposed
// A by elements, or, in types of two bytes or less, don't keep up with memory.
bool prefers_hopper(const GemmProblem& problem, int64_t units) {
  constexpr int64_t large = 12 << 20;  // bytes of B
  const int64_t bytes = dtype_of(problem.dtype).itemsize;
  if (problem.n < few || (problem.m < few && bytes != 2)) return false;
  if (problem.transpose_a) return bytes >= 4;
  if (bytes == 8) return problem.m > 8;
  // Clusters of eight with tiles of 64 columns keep half of the units busy.
  if (problem.batches > 1 || 16 * tiles(problem.n, 64) < units) return false;
  return bytes == 4 ? problem.m > 8 : problem.k * problem.n * bytes >= large;
}

void add_gpu(std::vector<Candidate>& found, const GemmProblem& problem, const Device& device) {
  const auto& info = device.info();
  const int64_t units = std::max<int64_t>(info.compute_units, 1);
  const auto groups = [&](int64_t tile) {
    return tiles(problem.m, tile) * tiles(problem.n, tile) * problem.batches;
  };
  const bool pipelines = info.backend == std::string("cuda");
  const std::string as_fast = concat(problem.m, " rows: as fast as B can be read");
  const bool hopper_first = prefers_hopper(problem, units);
  if (hopper_first) add_hopper(found, problem, device);
  if (pipelines) {
    add_few_rows_engine(found, problem, units, as_fast);
    found.push_back({"gemv_strips", strips(problem, units), as_fast});
    found.push_back({"gemv_dots", dots(problem, units), as_fast});
  }
  found.push_back({"gemv", "", as_fast});
  constexpr int64_t long_k = 512;
  if (problem.m >= few && problem.n >= few) {
    const bool few_tiles = groups(32) < units && problem.k >= long_k;
    const char* const by_engines = "matrix engines multiply several times faster than work-items";
    if (!hopper_first) add_hopper(found, problem, device);
    // Beyond, slices of K keep more of a device busy than a few work-groups do.
    constexpr int64_t longest = 1024;  // for each work-group
    if (few_tiles && pipelines && problem.aligned_a && problem.aligned_b &&
        problem.k <= longest * groups(32))
      add_engine_teams(found, problem, "SUB_M=32 SUB_N=32 TILE_M=32 TILE_N=32", by_engines);
    else if (!few_tiles)
      found.push_back({"gemm_matrix_engine",
                       groups(128) >= units ? ""
                       : pipelines          ? "SUB_M=32 SUB_N=32 TILE_M=64 TILE_N=64"
                                            : "TILE_M=64 TILE_N=64",
                       by_engines});
    if (pipelines) found.push_back(pipelined(problem, units));
    for (const int64_t tile : {128, 64})
      if (groups(tile) >= units)
        found.push_back({"gemm_register_blocked",
                         tile == 128 ? "" : "TILE_M=64 TILE_N=64 BLOCK_M=4 BLOCK_N=4",
                         concat(groups(tile), " tiles of ", tile, "x", tile, " occupy ", units,
                                " compute units")});
    if (few_tiles)
      found.push_back(
          {"gemm_split_k", "",
           concat(groups(32), " tiles of 32x32 would leave compute units idle; K is ", problem.k)});
    found.push_back(
        {"gemm_tiled_blocked2x2", "", concat("small tiles for ", units, " compute units")});
  }
}

// What is worth a try on the device, best first; the plain kernel, which can do everything, ends it.
std::vector<Candidate> candidates(const GemmProblem& problem, const Device& device) {
  std::vector<Candidate> found;
  if (device.info().type == std::string("cpu")) {
    found.push_back({"gemv_vector", "", concat(problem.m, " rows: as fast as B can be read")});
    found.push_back({"gemm_vector", "", "explicit vectors are a CPU's fastest way"});
  } else {
    add_gpu(found, problem, device);
  }
  found.push_back({"gemm", "", "the plain kernel does what no other takes"});
  return found;
}

struct ModelChoice {
  const GemmKernel* kernel;
  ParameterValues values;
  std::string reason;
};

ModelChoice choose_by_model(const GemmProblem& problem, const Device& device) {
  std::string objections;
  for (const auto& candidate : candidates(problem, device)) {
    const GemmKernel& kernel = gemm_kernel(candidate.kernel);
    ParameterValues values =
        kernel.parse(candidate.parameters, kernel.values_for(problem.dtype, device));
    const std::string objection = kernel.objection(problem, values, device);
    if (objection.empty()) return {&kernel, std::move(values), candidate.reason};
    objections += concat(objections.empty() ? "" : "; ", objection);
  }
  fail(FUNLIB_ERROR_UNSUPPORTED, objections);
}

GemmChoice make_choice(const GemmProblem& problem, const GemmWish& wish, const TuningTable& table,
                       const Device& device) {
  const auto planned = [&](const GemmKernel& kernel, ParameterValues values, const char* source,
                           std::string reason) {
    GemmPlan plan = kernel.plan(values, problem, device.info());
    return GemmChoice{&kernel, std::move(values), source, std::move(reason), std::move(plan)};
  };
  if (!wish.kernel.empty()) {
    const GemmKernel& kernel = gemm_kernel(wish.kernel);
    ParameterValues values =
        kernel.parse(wish.parameters, kernel.values_for(problem.dtype, device));
    const std::string objection = kernel.objection(problem, values, device);
    if (!objection.empty()) fail(FUNLIB_ERROR_UNSUPPORTED, objection);
    return planned(kernel, std::move(values), "forced", "the caller named it");
  }
  if (!wish.parameters.empty())
    invalid("parameters are \"", wish.parameters, "\", but no kernel is named");
  const Tuned* const tuned = table.nearest(problem, device);
  if (tuned != nullptr && (!tuned->agrees_with_model || tuned->is_for(problem))) {
    const auto& shape = tuned->problem;
    return planned(*tuned->kernel, tuned->values, "tuned",
                   concat("measured fastest at ", shape.m, "x", shape.k, "x", shape.n,
                          shape.batches > 1 ? concat(", ", shape.batches, " products") : ""));
  }
  ModelChoice model = choose_by_model(problem, device);
  return planned(*model.kernel, std::move(model.values), "model", std::move(model.reason));
}

// ---- what was chosen and compiled before -----------------------------------------------------

// A bounded memory of the choices made on a device, and its tuning table.
class Dispatch {
 public:
  std::shared_ptr<const GemmChoice> choose(const GemmProblem& problem, const GemmWish& wish,
                                           const Device& device) {
    const auto key = std::make_tuple(problem.key(), wish.kernel, wish.parameters);
    {
      std::shared_lock<std::shared_mutex> lock(mutex_);
      const auto found = choices_.find(key);
      if (found != choices_.end()) return found->second;
    }
    std::lock_guard<std::shared_mutex> lock(mutex_);
    auto choice = std::make_shared<const GemmChoice>(make_choice(problem, wish, table_, device));
    constexpr size_t most_choices = 4096;
    if (choices_.size() >= most_choices) choices_.clear();
    choices_.emplace(key, choice);
    return choice;
  }

  sycl::kernel code(Device& device, const GemmChoice& choice, const GemmProblem& problem) {
    const auto key =
        std::make_tuple(choice.kernel, choice.values, int(problem.dtype), int(problem.out_dtype),
                        problem.transpose_a, problem.transpose_b, int(problem.bias),
                        int(problem.activation), problem.panel_width != 0, problem.batches > 1,
                        choice.kernel->by_alignment && problem.has_vectors_a(),
                        choice.kernel->by_alignment && problem.has_vectors_b(),
                        choice.kernel->by_alignment && problem.far);
    {
      std::shared_lock<std::shared_mutex> lock(mutex_);
      const auto found = codes_.find(key);
      if (found != codes_.end()) return found->second;
    }
    sycl::kernel made = get_kernel(device, gemm_spec(*choice.kernel, choice.values, problem));
    std::lock_guard<std::shared_mutex> lock(mutex_);
    return codes_.emplace(key, std::move(made)).first->second;
  }

  void tune(Tuned entry) {
    std::lock_guard<std::shared_mutex> lock(mutex_);
    table_.add(std::move(entry));
    choices_.clear();
  }
  void forget_tuning() {
    std::lock_guard<std::shared_mutex> lock(mutex_);
    table_.clear();
    choices_.clear();
  }
  size_t tuned() {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    return table_.size();
  }

 private:
  using ProblemKey = decltype(GemmProblem{}.key());
  std::shared_mutex mutex_;
  TuningTable table_;
  std::map<std::tuple<ProblemKey, std::string, std::string>, std::shared_ptr<const GemmChoice>>
      choices_;
  std::map<std::tuple<const GemmKernel*, ParameterValues, int, int, bool, bool, int, int, bool,
                      bool, bool, bool, bool>,
           sycl::kernel>
      codes_;
};

// Never destroyed, like the devices.
Dispatch& dispatch_of(const Device& device) {
  static auto* all = new std::vector<Dispatch>(devices().size());
  return (*all)[size_t(device.index())];
}

}  // namespace

std::shared_ptr<const GemmChoice> choose_gemm(const GemmProblem& problem, const GemmWish& wish,
                                              const Device& device) {
  return dispatch_of(device).choose(problem, wish, device);
}

sycl::kernel gemm_code(Device& device, const GemmChoice& choice, const GemmProblem& problem) {
  return dispatch_of(device).code(device, choice, problem);
}

static_assert(FUNLIB_RELU == FUNLIB_ACTIVATION_RELU && FUNLIB_GELU == FUNLIB_ACTIVATION_GELU &&
                  FUNLIB_GELU_TANH == FUNLIB_ACTIVATION_GELU_TANH &&
                  FUNLIB_SILU == FUNLIB_ACTIVATION_SILU,
              "kernels number the activations as the C interface does");

KernelSpec gemm_spec(const GemmKernel& kernel, const ParameterValues& values,
                     const GemmProblem& problem) {
  KernelSpec spec;
  const Dtype &type = dtype_of(problem.dtype), &out = dtype_of(problem.out_dtype);
  spec.source = kernel.source;
  spec.entry = kernel.name;
  spec.label = concat(kernel.name, " ", type.name, " ", problem.transpose_a ? "t" : "n",
                      problem.transpose_b ? "t" : "n");
  spec.define("FUNLIB_T", type.device_type);
  spec.define("FUNLIB_OUT", out.device_type);
  spec.define("FUNLIB_INTEGER", type.is_integer);
  spec.define("FUNLIB_TRANSPOSE_A", problem.transpose_a);
  spec.define("FUNLIB_TRANSPOSE_B", problem.transpose_b);
  spec.define("FUNLIB_BIAS", int(problem.bias));
  spec.define("FUNLIB_ACTIVATION", int(problem.activation));
  spec.define("FUNLIB_BATCHED", problem.batches > 1);
  if (kernel.by_alignment) {
    spec.define("FUNLIB_FAR", problem.far);
    spec.define("FUNLIB_ALIGNED_A", problem.has_vectors_a());
    spec.define("FUNLIB_ALIGNED_B", problem.has_vectors_b());
  }
  if (kernel.panel_width != nullptr) spec.define("FUNLIB_PACKED_B", problem.panel_width != 0);
  for (size_t i = 0; i < values.size(); ++i)
    spec.define(concat("FUNLIB_", kernel.parameters[i].name).c_str(), values[i]);
  return spec;
}

}  // namespace funlib

using namespace funlib;

extern "C" {

funlib_status funlib_tuning_add(funlib_queue* queue, const funlib_tuning_entry* entry) {
  return guarded([&] {
    enter_runtime();
    const Device& device = required(queue, "queue").device;
    const auto& row = required(entry, "entry");
    dtype_of(row.dtype);
    if (row.m < 1 || row.n < 1 || row.k < 1 || row.batches < 1)
      invalid("the entry is for ", row.batches, " products of ", row.m, "x", row.k, "x", row.n,
              "; extents are at least 1");
    const GemmKernel& kernel = gemm_kernel(&required(row.kernel, "kernel"));
    const char* parameters = row.parameters != nullptr ? row.parameters : "";
    ParameterValues values = kernel.parse(parameters, kernel.values_for(row.dtype, device));
    GemmProblem problem{row.m, row.n, row.k, row.batches, row.dtype, row.dtype};
    problem.transpose_a = row.transpose_a != 0;
    problem.transpose_b = row.transpose_b != 0;
    const ModelChoice model = choose_by_model(problem, device);
    const bool agrees = model.kernel == &kernel && model.values == values;
    dispatch_of(device).tune({problem, &kernel, std::move(values), agrees});
  });
}

funlib_status funlib_tuning_count(funlib_queue* queue, int64_t* count) {
  return guarded([&] {
    enter_runtime();
    const Device& device = required(queue, "queue").device;
    required(count, "count") = int64_t(dispatch_of(device).tuned());
  });
}

funlib_status funlib_tuning_clear(funlib_queue* queue) {
  return guarded([&] {
    enter_runtime();
    dispatch_of(required(queue, "queue").device).forget_tuning();
  });
}

}  // extern "C"
