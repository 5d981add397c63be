// Poller: waits in the event loop until a file descriptor is readable or a timer expires.
//
// One epoll instance holds the link's sockets and a timer, and libuv watches this instance. So the sockets may be
// closed without telling libuv. All methods and the callback run in the thread that created the object.
#include <napi.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "core/clock.h"
#include "core/fd.h"
#include "core/waits.h"
#include "exports.h"
#include "uv_poll.h"

namespace {

class PollerObject;

/// The libuv handle and its file descriptors. It outlives the JavaScript object until libuv has closed the handle.
struct PollHandle {
  uv_poll_s* poll = nullptr;
  napi_async_cleanup_hook_handle hook = nullptr;
  PollerObject* owner = nullptr;
  int epoll = -1;
  int timer = -1;
  bool closing = false;

  uv_handle_s* Handle() { return reinterpret_cast<uv_handle_s*>(poll); }

  /// @returns 0 or -errno
  int Open(Napi::Env env) {
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0) return -errno;
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer < 0) return -errno;
    if (int refused = Add(timer)) return refused;
    uv_loop_s* loop = nullptr;
    if (napi_get_uv_event_loop(env, &loop) != napi_ok) return -EINVAL;
    poll = static_cast<uv_poll_s*>(calloc(1, uv_handle_size(kUvPoll)));
    if (int refused = uv_poll_init(loop, poll, epoll)) {
      free(poll);
      poll = nullptr;
      return refused;
    }
    uv_handle_set_data(Handle(), this);
    // The environment waits for this hook when it ends, so the loop never closes with an open handle.
    napi_add_async_cleanup_hook(
        env, [](napi_async_cleanup_hook_handle, void* handle) { static_cast<PollHandle*>(handle)->Close(); }, this,
        &hook);
    return 0;
  }

  int Add(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
  }

  void Close() {
    if (closing) return;
    closing = true;
    if (poll == nullptr) return Closed();
    uv_close(Handle(), [](uv_handle_s* handle) { static_cast<PollHandle*>(uv_handle_get_data(handle))->Closed(); });
    // libuv no longer watches it. A program that opens and closes without a pause would otherwise run out of them.
    CloseFd(timer);
    CloseFd(epoll);
  }

 private:
  void Closed();
};

class PollerObject : public Napi::ObjectWrap<PollerObject> {
 public:
  using Self = PollerObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "Poller",
                       {InstanceMethod<&Self::Open>("open"), InstanceMethod<&Self::Add>("add"),
                        InstanceMethod<&Self::Fd>("fd"), InstanceMethod<&Self::Start>("start"),
                        InstanceMethod<&Self::Stop>("stop"), InstanceMethod<&Self::Close>("close")});
  }

  // new Poller(callback)
  explicit PollerObject(const Napi::CallbackInfo& info)
      : ObjectWrap(info),
        callback_(Napi::Persistent(info[0].As<Napi::Function>())),
        context_(info.Env(), "wasm-roce link"),
        handle_(new PollHandle) {
    handle_->owner = this;
  }

  ~PollerObject() override {
    if (handle_ == nullptr) return;
    handle_->owner = nullptr;
    handle_->Close();
  }

  void Detach() { handle_ = nullptr; }

  void OnReadable() {
    // Watching goes on after a callback, so the next wait needs no system call. If none has begun by the next event,
    // watching stops.
    if (!isWaiting_) return StopWatching();
    isWaiting_ = false;
    endedWaits++;
    if (isTimed_ && Now() >= timerAt_) SetTimer(-1);  // an expired timer stays readable until it is set again
    Napi::Env env = Env();
    Napi::HandleScope scope(env);
    // The receiver must be an object; the event loop's callbacks have the global object.
    callback_.MakeCallback(env.Global(), 0, nullptr, context_);
    // The callback has no caller that could catch its exception.
    napi_value error = nullptr;
    if (env.IsExceptionPending() && napi_get_and_clear_last_exception(env, &error) == napi_ok)
      napi_fatal_exception(env, error);
  }

 private:
  // open(fds): 0 or -errno
  Napi::Value Open(const Napi::CallbackInfo& info) {
    int result = handle_ == nullptr ? -EBADF : handle_->Open(info.Env());
    auto fds = info[0].As<Napi::Array>();
    for (uint32_t i = 0; i < fds.Length() && result == 0; i++)
      result = handle_->Add(fds.Get(i).As<Napi::Number>().Int32Value());
    return Napi::Number::New(info.Env(), result);
  }

  // add(fd): 0 or -errno. The descriptor is removed when it is closed.
  Napi::Value Add(const Napi::CallbackInfo& info) {
    const int result = handle_ == nullptr || handle_->closing ? -EBADF : handle_->Add(info[0].As<Napi::Number>());
    return Napi::Number::New(info.Env(), result);
  }

  // fd(): the epoll instance, readable when one of the file descriptors is
  Napi::Value Fd(const Napi::CallbackInfo& info) {
    return Napi::Number::New(info.Env(), handle_ == nullptr ? -1 : handle_->epoll);
  }

  // start(nanoseconds from now until the timer expires, negative = no timer; keepAlive)
  void Start(const Napi::CallbackInfo& info) {
    if (handle_ == nullptr || handle_->poll == nullptr || handle_->closing) return;
    isWaiting_ = true;
    SetTimerFor(info[0].As<Napi::Number>().DoubleValue());
    if (info[1].As<Napi::Boolean>()) {
      uv_ref(handle_->Handle());
    } else {
      uv_unref(handle_->Handle());
    }
    if (isWatching_) return;
    isWatching_ = uv_poll_start(handle_->poll, kUvReadable, [](uv_poll_s* poll, int, int) {
                    auto handle = static_cast<PollHandle*>(uv_handle_get_data(reinterpret_cast<uv_handle_s*>(poll)));
                    if (handle->owner != nullptr) handle->owner->OnReadable();
                  }) == 0;
  }

  // A timer that expires too early stays: one needless wake-up costs less than setting the timer for every wait.
  void SetTimerFor(double nanoseconds) {
    const double now = Now();
    if (isTimed_ && timerAt_ > now && nanoseconds >= 0 && timerAt_ <= now + nanoseconds) return;
    SetTimer(nanoseconds);
    timerAt_ = now + nanoseconds;
  }

  void SetTimer(double nanoseconds) {
    const bool isWanted = nanoseconds >= 0;
    if (!isWanted && !isTimed_) return;
    itimerspec when{};
    if (isWanted) {
      // Zero would disarm the timer; a year is long enough for any deadline.
      when.it_value = TimeSpec(static_cast<int64_t>(std::fmin(std::fmax(nanoseconds, 1), 3.2e16)));
    }
    timerfd_settime(handle_->timer, 0, &when, nullptr);
    isTimed_ = isWanted;
  }

  void Stop(const Napi::CallbackInfo&) { StopWatching(); }

  void StopWatching() {
    if (!isWatching_ || handle_ == nullptr || handle_->closing) return;
    isWaiting_ = isWatching_ = false;
    uv_poll_stop(handle_->poll);
    SetTimer(-1);
  }

  static double Now() { return static_cast<double>(MonotonicTime()); }

  void Close(const Napi::CallbackInfo&) {
    if (handle_ == nullptr) return;
    PollHandle* handle = handle_;
    handle_ = nullptr;
    handle->owner = nullptr;
    handle->Close();
    callback_.Reset();
  }

  Napi::FunctionReference callback_;
  Napi::AsyncContext context_;
  PollHandle* handle_;
  bool isWatching_ = false;
  /// A wait runs: the next event calls back.
  bool isWaiting_ = false;
  bool isTimed_ = false;
  /// When the timer expires, in nanoseconds of CLOCK_MONOTONIC.
  double timerAt_ = 0;
};

void PollHandle::Closed() {
  if (owner != nullptr) owner->Detach();
  CloseFd(timer);
  CloseFd(epoll);
  if (hook != nullptr) napi_remove_async_cleanup_hook(hook);
  free(poll);
  delete this;
}

}  // namespace

void DefinePoller(Napi::Object exports) { exports.Set("Poller", PollerObject::Define(exports.Env())); }
