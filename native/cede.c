/*
 * The command `cede`: sends a plain `cede submit` by itself, and becomes the Python program for
 * everything else.
 *
 * A shell that submits in a loop pays for the start of a Python each time, and this is a twentieth
 * of that. The Python program, `cede-python` beside this one, has every command and every error
 * message, so each function below either finds what it expects or calls `hand_over`. Before the
 * call to the server that changes nothing. After it, Python repeats the call under the same
 * idempotency key and with the same bytes (S19), and prints the answer or the error.
 *
 * tables.h is made of Python modules when this is compiled; cede.cli.plain is the same in Python.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tables.h"

#ifndef PATIENCE /* tests have less */
#define PATIENCE TIMEOUT
#endif

#define COUNT(table) (sizeof(table) / sizeof *(table))
#define DIGITS "0123456789"
#define WORD DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"

enum {
    FILE_MAX = 1 << 20,
    ANSWER_MAX = 1 << 26,
    KEY_BYTES = 16,
};

static char **arguments;
static char key[2 * KEY_BYTES + 1];
static bool sent;

/* Become the Python program, with the same arguments: the one beside this one, else one in PATH. */
_Noreturn static void hand_over(void)
{
    static const char name[] = "cede-python";
    char path[PATH_MAX + sizeof name];

    if (sent)
        setenv(KEY_VARIABLE, key, 1);
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    while (length > 0 && path[length - 1] != '/')
        length--;
    if (length > 0) {
        memcpy(path + length, name, sizeof name);
        execv(path, arguments);
    }
    execvp(name, arguments);
    fprintf(stderr, "error: cede cannot start %s: %s\n", name, strerror(errno));
    _exit(EXIT_ERROR);
}

/* --- Texts ----------------------------------------------------------------------------------- */

struct text {
    char *bytes;
    size_t length, room;
};

static void add(struct text *to, const char *bytes, size_t length)
{
    if (to->length + length >= to->room) {
        to->room = 2 * (to->length + length) + 4096;
        to->bytes = realloc(to->bytes, to->room);
        if (to->bytes == NULL)
            hand_over();
    }
    memcpy(to->bytes + to->length, bytes, length);
    to->length += length;
    to->bytes[to->length] = '\0';
}

static void put(struct text *to, const char *string)
{
    add(to, string, strlen(string));
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), most = strlen(end);
    return length >= most && strcasecmp(text + length - most, end) == 0;
}

static bool consists_of(const char *text, const char *characters)
{
    return *text != '\0' && text[strspn(text, characters)] == '\0';
}

static char *copy(const char *bytes, size_t length)
{
    char *made = strndup(bytes, length);
    if (made == NULL)
        hand_over();
    return made;
}

/* Return a variable that is set and not empty, as `environ.get(…) or None` does. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

/* Return the length of the UTF-8 character at `at`; 0 if there is none, or none that is strict. */
static int character(const unsigned char *at)
{
    int length = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (at[0] > 0xf4)
        return 0;
    for (int each = 1; each < length; each++)
        if ((at[each] & 0xc0) != 0x80)
            return 0;
    /* Longer than it need be, a surrogate, or beyond the last character. */
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f))
        return 0;
    if ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return length;
}

static bool is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at != '\0') {
        int length = character(at);
        if (length == 0)
            return false;
        at += length;
    }
    return true;
}

/* Whether Python reads arguments and variables as UTF-8 here. */
static bool locale_is_utf8(void)
{
    const char *mode = getenv("PYTHONUTF8"), *name = variable("LC_ALL");
    if (mode != NULL && strcmp(mode, "1") != 0)
        return false;
    if (name == NULL)
        name = variable("LC_CTYPE");
    if (name == NULL)
        name = variable("LANG");
    return name != NULL && (ends_with(name, ".UTF-8") || ends_with(name, ".utf8"));
}

/* Add a JSON string, in the bytes of Python's `json.dumps(…, ensure_ascii=False)`. */
static void put_json(struct text *to, const char *string)
{
    static const char named[] = "\"\"\\\\\nn\rr\tt\ff\bb"; /* pairs: a character, its letter */
    bool is_ascii = true;

    put(to, "\"");
    for (const char *at = string; *at != '\0'; at++) {
        const char *pair = named;
        while (*pair != '\0' && *pair != *at)
            pair += 2;
        char escape[8] = {'\\', pair[0] == '\0' ? '\0' : pair[1]};
        if (*pair == '\0' && (unsigned char)*at < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*at);
        if (escape[1] != '\0')
            put(to, escape);
        else
            add(to, at, 1);
        is_ascii = is_ascii && (unsigned char)*at < 0x80;
    }
    put(to, "\"");
    if (!is_ascii && !(is_utf8(string) && locale_is_utf8()))
        hand_over();
}

/* --- The server and the token, as cede.client.config finds them ------------------------------- */

static struct {
    char *authority, *host, *port, *token;
} server;

static bool any_proxy(void)
{
    for (char **each = environ; *each != NULL; each++) {
        char *name = copy(*each, strcspn(*each, "="));
        if (ends_with(name, "_proxy"))
            return true;
        free(name);
    }
    return false;
}

/* Take one address by plain HTTP. Names go to the resolver as they do from Python; the case of
   letters, paths, several addresses and TLS are left to it. */
static void use(const char *address, const char *token)
{
    static const char *const loopback[] = {"127.0.0.1", "localhost", "::1"};
    static const char scheme[] = "http://";
    bool is_loopback = false;

    if (!starts_with(address, scheme) || !consists_of(token, WORD))
        hand_over();
    server.authority = copy(address + strlen(scheme), strlen(address));
    size_t length = strlen(server.authority);
    while (length > 0 && server.authority[length - 1] == '/')
        server.authority[--length] = '\0';
    bool is_bracketed = server.authority[0] == '[';
    char *start = server.authority + is_bracketed;
    length = strcspn(start, is_bracketed ? "]" : ":");
    server.host = copy(start, length);
    const char *rest = start + length + (is_bracketed && start[length] == ']');
    server.port = copy(*rest == ':' ? rest + 1 : "80", 8);
    server.token = copy(token, strlen(token));
    const char *letters = is_bracketed ? DIGITS "abcdef:." : DIGITS "abcdefghijklmnopqrstuvwxyz-.";
    if (!consists_of(server.host, letters) || (*rest != ':' && *rest != '\0'))
        hand_over();
    if (!consists_of(server.port, DIGITS) || *server.port == '0' || strlen(server.port) > 5)
        hand_over();
    for (size_t each = 0; each < COUNT(loopback); each++)
        is_loopback = is_loopback || strcmp(server.host, loopback[each]) == 0;
    if (!is_loopback && any_proxy())
        hand_over();
}

/* Return the content of a private file; NULL if there is none of that name. */
static char *content_of(const char *path)
{
    struct stat found = {0};
    if (stat(path, &found) != 0 && errno == ENOENT)
        return NULL;
    /* A pipe is not even opened: what is in it can be read once. */
    int file = S_ISREG(found.st_mode) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (file < 0 || fstat(file, &found) != 0 || !S_ISREG(found.st_mode))
        hand_over();
    if ((found.st_mode & (found.st_uid == 0 ? 037 : 077)) != 0 || found.st_size > FILE_MAX)
        hand_over();
    char *content = calloc(1, FILE_MAX + 2);
    ssize_t length = content == NULL ? -1 : read(file, content, FILE_MAX + 1);
    if (length != found.st_size || strlen(content) != (size_t)length)
        hand_over();
    close(file);
    return content;
}

static char *content_below(const char *base, const char *inside, const char *name)
{
    struct text path = {0};
    put(&path, base);
    put(&path, inside);
    put(&path, name);
    return content_of(path.bytes);
}

/* Take the file as `cede up` writes it: two lines. Any other is YAML. */
static void use_lines(char *content)
{
    static const char first[] = "server: ", second[] = "token: ";
    char *line = strchr(content, '\n');
    char *end = line == NULL ? NULL : strchr(line + 1, '\n');

    if (end == NULL || end[1] != '\0' || !starts_with(content, first))
        hand_over();
    *line++ = *end = '\0';
    char *token = line + strlen(second);
    if (!starts_with(line, second) || !starts_with(token, "cede_") || token == end - 5)
        hand_over();
    use(content + strlen(first), token);
}

/* Return what follows an expected text. */
static const char *past(const char *at, const char *expected)
{
    if (!starts_with(at, expected))
        hand_over();
    return at + strlen(expected);
}

/* Read a JSON string, of which escapes stay as they are, and what must follow it. */
static char *read_string(const char **at, const char *after)
{
    const char *start = past(*at, "\""), *end = start;
    for (; *end != '"'; end++) {
        if (*end < ' ' || *end > '~')
            hand_over();
        if (*end == '\\' && (*++end == '\0' || strchr("\"\\/bfnrt", *end) == NULL))
            hand_over();
    }
    *at = past(end + 1, after);
    return copy(start, (size_t)(end - start));
}

/* Take the context in use, from the text that cede.client.contexts writes; false if none is. */
static bool use_context(const char *at)
{
    char *current = NULL, *address = NULL, *token = NULL;

    at = past(at, "{\n \"current\": ");
    if (*at == 'n')
        at = past(at, "null,");
    else
        current = read_string(&at, ",");
    at = past(at, "\n \"contexts\": {");
    for (bool goes_on = *at != '}'; goes_on; at += goes_on) {
        at = past(at, "\n  ");
        char *name = read_string(&at, ": {\n   \"server\": ");
        char *its_address = read_string(&at, ",\n   \"token\": ");
        char *its_token = read_string(&at, ",\n   \"ca\": ");
        char *ca = read_string(&at, ",\n   \"expires\": ");
        read_string(&at, "\n  }");
        if (current != NULL && strcmp(name, current) == 0) {
            if (address != NULL || *ca != '\0')
                hand_over();
            address = its_address, token = its_token;
        }
        goes_on = *at == ',';
    }
    at += strspn(at, "\n ");
    if (strcmp(at, "}\n}") != 0 || (current != NULL && address == NULL))
        hand_over();
    if (current != NULL)
        use(address, token);
    return current != NULL;
}

static void find_server(void)
{
    const char *address = variable("CEDE_SERVER"), *token = variable("CEDE_TOKEN");
    const char *config = variable("CEDE_CONFIG"), *own = variable("XDG_CONFIG_HOME");
    const char *data = variable("XDG_DATA_HOME"), *home = variable("HOME");
    char *content;

    if (address != NULL && token != NULL) {
        use(address, token);
        return;
    }
    if (address != NULL || token != NULL || home == NULL || *home != '/')
        hand_over();
    content = content_of(config != NULL ? config : ".cede/client.yaml");
    if (content == NULL && config != NULL)
        hand_over();
    if (content == NULL) {
        char *contexts = content_below(
            own != NULL ? own : home, own != NULL ? "" : "/.config", "/cede/contexts.json");
        if (contexts != NULL && use_context(contexts))
            return;
        content = content_below(
            data != NULL ? data : home, data != NULL ? "" : "/.local/share", "/cede/client.yaml");
    }
    if (content == NULL)
        hand_over();
    use_lines(content);
}

/* --- The command line, as cede.cli.plain reads it, and the body that it means ----------------- */

static const char *given[OPTION_COUNT];
static bool no_env;

/* Read the options; return the command behind them. */
static char **read_line(char **words)
{
    for (; *words != NULL && strcmp(*words, "--") != 0; words++) {
        size_t at = 0;
        if (strcmp(*words, NO_ENV) == 0) {
            no_env = true;
            continue;
        }
        while (at < COUNT(OPTIONS) && strcmp(*words, OPTIONS[at].word) != 0)
            at++;
        if (at == COUNT(OPTIONS) || *++words == NULL || **words == '\0' || **words == '-')
            hand_over();
        given[OPTIONS[at].means] = *words;
    }
    if (words[0] == NULL || words[1] == NULL)
        hand_over();
    return words + 1;
}

static void put_option(struct text *to, const char *name, const char *value)
{
    if (value == NULL)
        return;
    put(to, ",\"");
    put(to, name);
    put(to, "\":");
    put_json(to, value);
}

/* Names and settings of the request: everything but the work. */
static void put_request(struct text *to)
{
    const char *gpu = given[GPU], *type = given[COMPONENT_TYPE], *name = given[NAME];

    put(to, "{\"kind\":\"work\",\"settings\":{");
    if (gpu != NULL) {
        if (!consists_of(gpu, DIGITS) || strlen(gpu) > GPU_DIGITS)
            hand_over();
        gpu += strspn(gpu, "0");
        put(to, "\"gpu_count\":");
        put(to, *gpu == '\0' ? "0" : gpu);
        put(to, ",");
    }
    put(to, "\"preemptible\":true}");
    put_option(to, "pool", given[POOL]);
    put_option(to, "component", given[COMPONENT]);
    size_t known = 0;
    while (type != NULL && known < COUNT(SUBJECT_TYPES) && strcmp(type, SUBJECT_TYPES[known]) != 0)
        known++;
    if (known == COUNT(SUBJECT_TYPES))
        hand_over();
    put_option(to, "component_type", type);
    put(to, ",\"retry\":{\"max_retries\":0,\"delay\":0}");
    if (name == NULL)
        return;
    for (const char *at = name; *at != '\0'; at++)
        if (*at < ' ' || *at > '~' || at - name >= LABEL_LENGTH_MAX)
            hand_over(); /* whether a character is printable is known to Python */
    put(to, ",\"labels\":{\"name\":");
    put_json(to, name);
    put(to, "}");
}

/* The variables that are taken along, and where the work runs. */
static void put_surroundings(struct text *to)
{
    const char *before = ",\"env\":{", *directory = given[DIRECTORY];
    char here[PATH_MAX];
    struct text path = {0};

    for (size_t each = 0; each < COUNT(CAPTURED) && !no_env; each++) {
        const char *value = variable(CAPTURED[each]);
        if (value == NULL)
            continue;
        put(to, before);
        put_json(to, CAPTURED[each]);
        put(to, ":");
        put_json(to, value);
        before = ",";
    }
    put(to, *before == ',' && before[1] == '\0' ? "}" : "");
    if (getcwd(here, sizeof here) == NULL)
        hand_over();
    if (directory == NULL || *directory != '/')
        put(&path, here);
    if (directory != NULL) {
        for (const char *at = directory + (*directory == '/');; at++) {
            size_t length = strcspn(at, "/");
            if (length == 0 || (length == 1 && *at == '.') || here[1] == '\0')
                hand_over(); /* Python writes it in a shorter way */
            at += length;
            if (*at == '\0')
                break;
        }
        put(&path, *directory == '/' ? "" : "/");
        put(&path, directory);
    }
    put_option(to, "directory", path.bytes);
}

static struct text body_of(char **command)
{
    struct text body = {0};
    put_request(&body);
    put(&body, ",\"work\":{\"argv\":");
    for (char **each = command; *each != NULL; each++) {
        put(&body, each == command ? "[" : ",");
        put_json(&body, *each);
    }
    put(&body, "]");
    put_surroundings(&body);
    put_option(&body, "user", given[USER]);
    put(&body, "}}");
    return body;
}

/* --- The call --------------------------------------------------------------------------------- */

static void make_key(void)
{
    unsigned char bytes[KEY_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        hand_over();
    for (size_t each = 0; each < sizeof bytes; each++)
        snprintf(key + 2 * each, 3, "%02x", bytes[each]);
}

/* The call in the bytes of cede.client.http. */
static struct text call_of(const struct text *body)
{
    struct text call = {0};
    char length[32];

    snprintf(length, sizeof length, "%zu", body->length);
    const char *const parts[] = {
        "POST /api/v1/requests HTTP/1.1\r\nHost: ", server.authority,
        "\r\nAuthorization: Bearer ", server.token,
        "\r\nAccept: application/json\r\nUser-Agent: cede/" VERSION "\r\nIdempotency-Key: ", key,
        "\r\nContent-Type: application/json\r\nContent-Length: ", length, "\r\n\r\n",
    };
    for (size_t each = 0; each < COUNT(parts); each++)
        put(&call, parts[each]);
    add(&call, body->bytes, body->length);
    return call;
}

static int connected(void)
{
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found;
    struct timeval patience = {.tv_sec = PATIENCE};
    int on = 1;

    if (getaddrinfo(server.host, server.port, &wanted, &found) != 0)
        hand_over();
    for (; found != NULL; found = found->ai_next) {
        int made = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, found->ai_protocol);
        if (made < 0)
            continue;
        /* The first also bounds how long a connection may take. */
        setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (connect(made, found->ai_addr, found->ai_addrlen) == 0)
            return made;
        close(made);
    }
    hand_over();
}

static void send_all(int to, const char *bytes, size_t length)
{
    sent = true;
    while (length > 0) {
        ssize_t done = send(to, bytes, length, MSG_NOSIGNAL);
        if (done < 0 && errno != EINTR)
            hand_over();
        bytes += done > 0 ? done : 0;
        length -= done > 0 ? (size_t)done : 0;
    }
}

/* Add what arrives next. */
static void receive(int from, struct text *to)
{
    char piece[1 << 14];
    ssize_t length;

    do
        length = recv(from, piece, sizeof piece, 0);
    while (length < 0 && errno == EINTR); /* it was stopped, and goes on */
    if (length <= 0 || to->length > ANSWER_MAX)
        hand_over();
    add(to, piece, (size_t)length);
}

/* Return the length of the body, by a head that says 201 and one length. */
static size_t length_of(char *head)
{
    static const char wanted[] = "content-length:";
    const char *length = NULL;

    if (!starts_with(head, "HTTP/1.1 201 "))
        hand_over();
    for (char *line = strstr(head, "\r\n"); line != NULL; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, "transfer-encoding", strlen("transfer-encoding")) == 0)
            hand_over();
        if (strncasecmp(line, wanted, strlen(wanted)) != 0)
            continue;
        if (length != NULL)
            hand_over();
        length = line + strlen(wanted);
        length += *length == ' ';
    }
    size_t digits = length == NULL ? 0 : strspn(length, DIGITS);
    if (digits == 0 || digits > 8 || (length[digits] != '\r' && length[digits] != '\0'))
        hand_over();
    return strtoul(length, NULL, 10);
}

/* Return the body of a whole answer that says: created. */
static const char *answer_from(int from)
{
    struct text answer = {0};
    const char *end;

    do
        receive(from, &answer);
    while ((end = strstr(answer.bytes, "\r\n\r\n")) == NULL);
    size_t head = (size_t)(end - answer.bytes) + 4;
    answer.bytes[head - 4] = '\0';
    size_t length = length_of(answer.bytes);
    while (answer.length < head + length)
        receive(from, &answer);
    if (strlen(answer.bytes + head) != length) /* more follows, or a NUL is in it */
        hand_over();
    return answer.bytes + head;
}

/* Return the text of one member of the outermost object of compact JSON. Strings and brackets are
   followed; that the values between them are sound is left to the server that said 201. */
static char *member(const char *json, const char *name)
{
    const char *at = json, *end;
    char *found = NULL;
    int depth = 0;

    for (; *at != '\0' && (depth > 0 || at == json); at++) {
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        if (*at != '"')
            continue;
        for (end = at + 1; *end != '"'; end++)
            if (*end == '\0' || (*end == '\\' && *++end == '\0'))
                hand_over();
        if (depth == 1 && starts_with(at + 1, name) && at + 1 + strlen(name) == end &&
            end[1] == ':') {
            size_t length = strcspn(end + 2, ",}");
            if (found != NULL || length < 2 || end[2] != '"' || end[length + 1] != '"')
                hand_over();
            found = copy(end + 3, length - 2);
        }
        at = end;
    }
    if (*json != '{' || depth != 0 || *at != '\0' || found == NULL)
        hand_over();
    return found;
}

/* Return the id of a request that was made and not rejected. */
static char *id_in(const char *answer)
{
    static const char form[] = "xxxxxxxx-xxxx-7xxx-yxxx-xxxxxxxxxxxx";
    char *id = member(answer, "id"), *status = member(answer, "status");

    if (strcmp(status, "rejected") == 0 || !consists_of(status, WORD) || strlen(id) != strlen(form))
        hand_over();
    for (size_t each = 0; form[each] != '\0'; each++) {
        const char *letters = form[each] == 'x' ? DIGITS "abcdef" : form[each] == 'y' ? "89ab" : "";
        if (strchr(letters, id[each]) == NULL && form[each] != id[each])
            hand_over();
    }
    return id;
}

/* Print the id whole for a program, and its short form for people. A reader that has gone is no
   error. */
static void print_id(char *id)
{
    struct text line = {0};
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);

    if (isatty(STDOUT_FILENO))
        add(&line, id + SHORT_AT, SHORT);
    else
        put(&line, id);
    put(&line, "\n");
    if (write(STDOUT_FILENO, line.bytes, line.length) == (ssize_t)line.length || errno == EPIPE)
        return;
    signal(SIGPIPE, before);
    hand_over();
}

/* An interrupt is not repeated by Python: this says what that would say. */
static void interrupted(int number)
{
    static const char said[] = "interrupted\n";
    ssize_t told = write(STDERR_FILENO, said, sizeof said - 1);
    (void)number, (void)told;
    _exit(EXIT_INTERRUPTED);
}

/* Whether Python would do the same here: the three standard files are open, so that no connection
   takes their place; and nothing asks for another encoding, or for a key of its own. */
static bool is_ordinary(void)
{
    const char *encoding = getenv("PYTHONIOENCODING");
    for (int each = STDIN_FILENO; each <= STDERR_FILENO; each++)
        if (fcntl(each, F_GETFD) < 0)
            return false;
    return getenv(KEY_VARIABLE) == NULL && (encoding == NULL || strcasecmp(encoding, "utf-8") == 0);
}

int main(int count, char **words)
{
    arguments = words;
    if (count < 2 || strcmp(words[1], "submit") != 0 || !is_ordinary())
        hand_over();
    struct text body = body_of(read_line(words + 2));
    find_server();
    make_key();
    struct text call = call_of(&body);
    if (signal(SIGINT, interrupted) == SIG_IGN)
        signal(SIGINT, SIG_IGN);
    int connection = connected();
    send_all(connection, call.bytes, call.length);
    print_id(id_in(answer_from(connection)));
    return EXIT_SUCCESS;
}
