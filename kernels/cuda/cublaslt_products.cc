// Products by cuBLASLt, which is loaded when the first device is made: it is larger than all the rest
// together, and where a GPU is used it is installed with CUDA or PyTorch.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <array>
#include <bit>
#include <map>
#include <optional>
#include <tuple>

#include "kernels/allocation_failure.h"
#include "kernels/cuda/products.h"

namespace adaptive_train::kernels::cuda {
namespace {

constexpr const char* kLibrary = ADAPTIVE_TRAIN_CUBLASLT;
constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what NVIDIA recommends for Hopper

/// The library's functions.
struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) create_description;
  decltype(&cublasLtMatmulDescDestroy) destroy_description;
  decltype(&cublasLtMatmulDescSetAttribute) set_description;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
};

template <class F>
void Load(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  if (function == nullptr) throw CudaFailure(std::string("GPU: ") + kLibrary + " has no " + name);
}

Functions LoadFunctions() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw CudaFailure(std::string("GPU: ") + kLibrary + " is missing (" + ::dlerror() +
                      "); install CUDA 13's cuBLAS, or name its folder in LD_LIBRARY_PATH");
  Functions f;
  Load(library, "cublasLtCreate", f.create);
  Load(library, "cublasLtDestroy", f.destroy);
  Load(library, "cublasLtGetVersion", f.version);
  Load(library, "cublasLtGetStatusString", f.status_string);
  Load(library, "cublasLtMatmul", f.matmul);
  Load(library, "cublasLtMatmulAlgoGetHeuristic", f.heuristic);
  Load(library, "cublasLtMatmulDescCreate", f.create_description);
  Load(library, "cublasLtMatmulDescDestroy", f.destroy_description);
  Load(library, "cublasLtMatmulDescSetAttribute", f.set_description);
  Load(library, "cublasLtMatrixLayoutCreate", f.create_layout);
  Load(library, "cublasLtMatrixLayoutDestroy", f.destroy_layout);
  Load(library, "cublasLtMatmulPreferenceCreate", f.create_preference);
  Load(library, "cublasLtMatmulPreferenceDestroy", f.destroy_preference);
  Load(library, "cublasLtMatmulPreferenceSetAttribute", f.set_preference);
  return f;
}

cudaDataType TypeOf(Scalar scalar) {
  switch (scalar) {
    case Scalar::kBFloat16:
      return CUDA_R_16BF;
    case Scalar::kFloat16:
      return CUDA_R_16F;
    case Scalar::kFloat32:
      break;
  }
  return CUDA_R_32F;
}

/// The alignment of an array in bytes, up to 256.
std::uint32_t AlignmentOf(const void* array) {
  return 1U << std::countr_zero(reinterpret_cast<std::uintptr_t>(array) | 256);
}

/// What an algorithm is chosen for. The library takes the alignment of the bias and of `other` from
/// their pointers, and is told those of the matrices.
using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, Scalar,
                       Scalar, bool, bool, bool, bool, AfterProduct, std::array<std::uint32_t, 6>>;

Key KeyOf(const Product& x) {
  const std::array alignments{AlignmentOf(x.a), AlignmentOf(x.b),    AlignmentOf(x.c),
                              AlignmentOf(x.d), AlignmentOf(x.bias), AlignmentOf(x.other)};
  return {x.rows,         x.columns, x.inner,       x.AStride(),   x.DStride(),
          x.operands,     x.result,  x.transpose_a, x.transpose_b, x.bias != nullptr,
          x.c != nullptr, x.after,   alignments};
}

}  // namespace

/// A row-major product is the column-major one of the transposed matrices: d^T = op(b)^T op(a)^T.
/// What a row-major array holds is its transpose, column-major.
struct Products::Library {
  explicit Library(const Stream& of_device) : f(LoadFunctions()), stream(of_device) {
    Check(f.create(&handle));
    workspace = AllocateOn(stream, kWorkspace);
  }
  ~Library() {
    f.destroy(handle);  // waits for the GPU
    FreeOn(stream, workspace);
  }

  void Check(cublasStatus_t status) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw CudaFailure(std::string("GPU, ") + stream.operation() +
                      ": cuBLASLt: " + f.status_string(status));
  }

  const Functions f;
  const Stream& stream;
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> algorithms;
};

namespace {

cublasLtEpilogue_t EpilogueOf(const Product& x) {
  switch (x.after) {
    case AfterProduct::kGelu:
      return x.bias == nullptr ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case AfterProduct::kGeluDerivative:
      return CUBLASLT_EPILOGUE_DGELU;
    case AfterProduct::kNothing:
      break;
  }
  return x.bias == nullptr ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS;
}

/// The library's descriptions of one product.
class Described {
 public:
  template <class Library>
  Described(const Product& x, const Library& library) : f_(library.f) {
    library.Check(f_.create_description(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    Set(library, CUBLASLT_MATMUL_DESC_TRANSA, x.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(library, CUBLASLT_MATMUL_DESC_TRANSB, x.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(library, CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(x));
    if (x.bias != nullptr) Set(library, CUBLASLT_MATMUL_DESC_BIAS_POINTER, x.bias);
    if (x.after != AfterProduct::kNothing) {
      Set(library, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, x.other);
      Set(library, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, x.columns);
    }
    const auto layout = [&](cublasLtMatrixLayout_t& to, Scalar scalar, std::int64_t rows,
                            std::int64_t columns, std::int64_t stride) {
      library.Check(f_.create_layout(&to, TypeOf(scalar), static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), stride));
    };
    layout(a_, x.operands, x.transpose_a ? x.inner : x.rows, x.transpose_a ? x.rows : x.inner,
           x.AStride());
    const std::int64_t b_columns = x.transpose_b ? x.inner : x.columns;
    layout(b_, x.operands, x.transpose_b ? x.columns : x.inner, b_columns, b_columns);
    layout(d_, x.result, x.rows, x.columns, x.DStride());
  }
  ~Described() {
    f_.destroy_layout(a_);
    f_.destroy_layout(b_);
    f_.destroy_layout(d_);
    f_.destroy_description(product_);
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;

  cublasLtMatmulDesc_t product() const { return product_; }
  cublasLtMatrixLayout_t a() const { return a_; }
  cublasLtMatrixLayout_t b() const { return b_; }
  cublasLtMatrixLayout_t d() const { return d_; }

 private:
  template <class Library, class Value>
  void Set(const Library& library, cublasLtMatmulDescAttributes_t attribute, Value value) {
    library.Check(f_.set_description(product_, attribute, &value, sizeof value));
  }

  const Functions& f_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
};

/// The first algorithm that the library proposes, without sums of parts in the output's type; none
/// where it has none.
template <class Library>
std::optional<cublasLtMatmulAlgo_t> Choose(const Product& x, const Described& described,
                                           const Library& library) {
  const Functions& f = library.f;
  cublasLtMatmulPreference_t preference = nullptr;
  library.Check(f.create_preference(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    library.Check(f.set_preference(preference, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(x.b));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(x.a));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(x.c == nullptr ? x.d : x.c));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(x.d));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status =
      f.heuristic(library.handle, described.product(), described.b(), described.a(), described.d(),
                  described.d(), preference, 1, &found, &count);
  f.destroy_preference(preference);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) library.Check(status);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0 || found.state != CUBLAS_STATUS_SUCCESS)
    return std::nullopt;
  return found.algo;
}

template <class Library>
const std::optional<cublasLtMatmulAlgo_t>& AlgorithmFor(const Product& x,
                                                        const Described& described,
                                                        Library& library) {
  const Key key = KeyOf(x);
  auto at = library.algorithms.find(key);
  if (at == library.algorithms.end())
    at = library.algorithms.emplace(key, Choose(x, described, library)).first;
  return at->second;
}

}  // namespace

Products::Products(const Stream& stream) : library_(std::make_unique<Library>(stream)) {}
Products::~Products() = default;

void Products::Multiply(const Product& x) {
  const Described described(x, *library_);
  const auto& algorithm = AlgorithmFor(x, described, *library_);
  if (!algorithm) library_->Check(CUBLAS_STATUS_NOT_SUPPORTED);
  const float beta = x.c == nullptr ? 0 : 1;
  library_->Check(library_->f.matmul(
      library_->handle, described.product(), &x.alpha, x.b, described.b(), x.a, described.a(),
      &beta, x.c == nullptr ? x.d : x.c, described.d(), x.d, described.d(), &*algorithm,
      library_->workspace, kWorkspace, library_->stream.get()));
}

bool Products::Has(const Product& x) {
  return AlgorithmFor(x, Described(x, *library_), *library_).has_value();
}

std::string Products::Description() const {
  const std::size_t version = library_->f.version();
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

}  // namespace adaptive_train::kernels::cuda
