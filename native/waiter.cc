// Sleeping in the event loop until a file descriptor is readable or a deadline has come.
//
// One epoll instance holds the link's sockets and a timer; libuv watches that one. The sockets may therefore be closed
// without libuv's knowledge.
#include <napi.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "frames.h"
#include "uv_poll.h"

namespace {

class WaiterObject;

/// What libuv holds on to. It outlives the JavaScript object until libuv has let go of it.
struct Watch {
  uv_poll_s* poll = nullptr;
  napi_async_cleanup_hook_handle hook = nullptr;
  WaiterObject* owner = nullptr;
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
    // The environment waits for this hook at its end, so that the loop never closes over an open handle.
    napi_add_async_cleanup_hook(
        env, [](napi_async_cleanup_hook_handle, void* watch) { static_cast<Watch*>(watch)->Close(); }, this, &hook);
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
    uv_close(Handle(), [](uv_handle_s* handle) { static_cast<Watch*>(uv_handle_get_data(handle))->Closed(); });
  }

 private:
  void Closed();
};

class WaiterObject : public Napi::ObjectWrap<WaiterObject> {
 public:
  using Self = WaiterObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "Waiter",
                       {InstanceMethod<&Self::Open>("open"), InstanceMethod<&Self::Add>("add"), InstanceMethod<&Self::Fd>("fd"),
                        InstanceMethod<&Self::Start>("start"),
                        InstanceMethod<&Self::Stop>("stop"), InstanceMethod<&Self::Close>("close")});
  }

  // new Waiter(callback)
  explicit WaiterObject(const Napi::CallbackInfo& info)
      : ObjectWrap(info),
        callback_(Napi::Persistent(info[0].As<Napi::Function>())),
        context_(info.Env(), "wasm-roce link"),
        watch_(new Watch) {
    watch_->owner = this;
  }

  ~WaiterObject() override {
    if (watch_ == nullptr) return;
    watch_->owner = nullptr;
    watch_->Close();
  }

  void Forget() { watch_ = nullptr; }

  void Fire() {
    // Who sleeps again soon needs no system call for it; who does not is asked no more than once in vain.
    if (!isWaiting_) return StopWatching();
    isWaiting_ = false;
    if (isTimed_ && Now() >= timerAt_) SetTimer(-1);  // an expired timer stays readable until it is set anew
    Napi::Env env = Env();
    Napi::HandleScope scope(env);
    // The receiver must be an object; callbacks in the event loop have the global one.
    callback_.MakeCallback(env.Global(), 0, nullptr, context_);
    // What the callback throws has no caller to go to.
    napi_value error = nullptr;
    if (env.IsExceptionPending() && napi_get_and_clear_last_exception(env, &error) == napi_ok)
      napi_fatal_exception(env, error);
  }

 private:
  // open(fds): 0 or -errno
  Napi::Value Open(const Napi::CallbackInfo& info) {
    int result = watch_ == nullptr ? -EBADF : watch_->Open(info.Env());
    auto fds = info[0].As<Napi::Array>();
    for (uint32_t i = 0; i < fds.Length() && result == 0; i++)
      result = watch_->Add(fds.Get(i).As<Napi::Number>().Int32Value());
    return Napi::Number::New(info.Env(), result);
  }

  // add(fd): 0 or -errno. One more to wait for; it goes by being closed.
  Napi::Value Add(const Napi::CallbackInfo& info) {
    const int result = watch_ == nullptr || watch_->closing ? -EBADF : watch_->Add(info[0].As<Napi::Number>());
    return Napi::Number::New(info.Env(), result);
  }

  // fd(): readable when one of the file descriptors is
  Napi::Value Fd(const Napi::CallbackInfo& info) {
    return Napi::Number::New(info.Env(), watch_ == nullptr ? -1 : watch_->epoll);
  }

  // start(nanoseconds from now or a negative number for no deadline, keepAlive)
  void Start(const Napi::CallbackInfo& info) {
    if (watch_ == nullptr || watch_->poll == nullptr || watch_->closing) return;
    isWaiting_ = true;
    SetTimerFor(info[0].As<Napi::Number>().DoubleValue());
    if (info[1].As<Napi::Boolean>()) {
      uv_ref(watch_->Handle());
    } else {
      uv_unref(watch_->Handle());
    }
    if (isWatching_) return;
    isWatching_ = uv_poll_start(watch_->poll, kUvReadable, [](uv_poll_s* poll, int, int) {
                    auto watch = static_cast<Watch*>(uv_handle_get_data(reinterpret_cast<uv_handle_s*>(poll)));
                    if (watch->owner != nullptr) watch->owner->Fire();
                  }) == 0;
  }

  // A timer that fires early is left alone: that costs one look, less than setting it for every sleep.
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
      // Zero would disarm it; a year is as good as for ever.
      const double bounded = std::fmin(std::fmax(nanoseconds, 1), 3.2e16);
      when.it_value.tv_sec = static_cast<time_t>(bounded / 1e9);
      when.it_value.tv_nsec = static_cast<long>(bounded - static_cast<double>(when.it_value.tv_sec) * 1e9);
      if (when.it_value.tv_sec == 0 && when.it_value.tv_nsec == 0) when.it_value.tv_nsec = 1;
    }
    timerfd_settime(watch_->timer, 0, &when, nullptr);
    isTimed_ = isWanted;
  }

  void Stop(const Napi::CallbackInfo&) { StopWatching(); }

  void StopWatching() {
    if (!isWatching_ || watch_ == nullptr || watch_->closing) return;
    isWaiting_ = isWatching_ = false;
    uv_poll_stop(watch_->poll);
    SetTimer(-1);
  }

  static double Now() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
  }

  void Close(const Napi::CallbackInfo&) {
    if (watch_ == nullptr) return;
    Watch* watch = watch_;
    watch_ = nullptr;
    watch->owner = nullptr;
    watch->Close();
    callback_.Reset();
  }

  Napi::FunctionReference callback_;
  Napi::AsyncContext context_;
  Watch* watch_;
  bool isWatching_ = false;
  /// JavaScript wants to be called.
  bool isWaiting_ = false;
  bool isTimed_ = false;
  /// When the timer fires, in nanoseconds of its clock.
  double timerAt_ = 0;
};

void Watch::Closed() {
  if (owner != nullptr) owner->Forget();
  CloseFd(timer);
  CloseFd(epoll);
  if (hook != nullptr) napi_remove_async_cleanup_hook(hook);
  free(poll);
  delete this;
}

}  // namespace

Napi::Function Waiter(Napi::Env env) { return WaiterObject::Define(env); }
