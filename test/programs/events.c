// Prints the asynchronous events of the first device, one on a line, each with what the program sees of the port then:
// its state by the verbs and by sysfs, and its IPv4 GIDs. Ends with IBV_EVENT_DEVICE_FATAL.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>

static void print_port(struct ibv_context *context) {
  struct ibv_port_attr port;
  char state[32] = "";
  FILE *file = fopen("/sys/class/infiniband/wroce0/ports/1/state", "r");
  if (file != NULL && fgets(state, sizeof state, file) == NULL) state[0] = 0;
  if (file != NULL) fclose(file);
  if (ibv_query_port(context, 1, &port) != 0) return;
  printf(" %s", ibv_port_state_str(port.state));
  for (int i = 0; i < port.gid_tbl_len; i++) {
    union ibv_gid gid;
    char text[INET_ADDRSTRLEN];
    if (ibv_query_gid(context, 1, i, &gid) != 0 || gid.raw[10] != 0xff || gid.raw[11] != 0xff) continue;
    printf(" %s", inet_ntop(AF_INET, gid.raw + 12, text, sizeof text));
  }
  printf(" %s", state);
}

int main(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  if (list == NULL || list[0] == NULL) return 1;
  struct ibv_context *context = ibv_open_device(list[0]);
  if (context == NULL) return 1;
  setvbuf(stdout, NULL, _IOLBF, 0);
  puts("ready");
  for (int is_alive = 1; is_alive;) {
    struct ibv_async_event event;
    if (ibv_get_async_event(context, &event) != 0) return 1;
    printf("%s:", ibv_event_type_str(event.event_type));
    print_port(context);
    is_alive = event.event_type != IBV_EVENT_DEVICE_FATAL;
    ibv_ack_async_event(&event);
  }
  return 0;
}
