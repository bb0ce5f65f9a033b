#include "cudnn_rnn/cc/core/exceptions.h"

#include <exception>
#include <new>
#include <stdexcept>

namespace cudnn_rnn {

const char kOutOfHostMemoryText[] =
    "There is not enough host memory for this call. Use a smaller batch, fewer steps or a smaller "
    "model.";

namespace {

// Returns kResourceExhausted with an empty text if there is no memory for the text.
Status MakeStatus(StatusCode code, const char* text) noexcept {
  try {
    return Status(code, text);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, std::string());
  }
}

}  // namespace

Status StatusOfCurrentException() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return MakeStatus(StatusCode::kResourceExhausted, kOutOfHostMemoryText);
  } catch (const std::length_error&) {  // A container larger than any memory.
    return MakeStatus(StatusCode::kResourceExhausted, kOutOfHostMemoryText);
  } catch (const std::exception& exception) {
    return MakeStatus(StatusCode::kInternal, exception.what());
  } catch (...) {
    return MakeStatus(StatusCode::kInternal, "The call ended with an exception of unknown type.");
  }
}

}  // namespace cudnn_rnn
