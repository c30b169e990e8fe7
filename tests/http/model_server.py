"""A model server for tests: speaks both protocols, says what a script says, and keeps what it was
asked. No test ever asks a real model.

A script is a list of answers, one a request, or a function of the messages that gives one. An
answer is a dict: text, calls [(name, arguments)], or raw {status, headers, body} broken=True (the
connection is closed half-way) or drip=SECONDS."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def openai(answer, number):
    """-> the events of a stream, arguments cut into pieces as servers do."""
    chunks = []

    def chunk(delta, reason=None):
        chunks.append({"id": "x", "model": "scripted", "choices": [
            {"index": 0, "delta": delta, "finish_reason": reason}]})

    chunk({"role": "assistant"})
    text = answer.get("text", "")
    for at in range(0, len(text), 7):
        chunk({"content": text[at:at + 7]})
    for index, (name, arguments) in enumerate(answer.get("calls", ())):
        body = json.dumps(arguments)
        chunk({"tool_calls": [{"index": index, "id": "call_%d_%d" % (number, index),
                               "type": "function",
                               "function": {"name": name, "arguments": body[:1]}}]})
        for at in range(1, len(body), 11):
            chunk({"tool_calls": [{"index": index, "function": {"arguments": body[at:at + 11]}}]})
    chunk({}, "tool_calls" if answer.get("calls") else "stop")
    chunks.append({"choices": [], "usage": answer.get(
        "usage", {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110})})
    return "".join("data: %s\n\n" % json.dumps(one) for one in chunks) + "data: [DONE]\n\n"


def anthropic(answer, number):
    events = [("message_start", {"message": {"model": "scripted", "usage": {
        "input_tokens": 100, "output_tokens": 1}}})]
    index = 0
    if answer.get("text"):
        events.append(("content_block_start", {"index": 0, "content_block": {
            "type": "text", "text": ""}}))
        events.append(("content_block_delta", {"index": 0, "delta": {
            "type": "text_delta", "text": answer["text"]}}))
        events.append(("content_block_stop", {"index": 0}))
        index = 1
    for name, arguments in answer.get("calls", ()):
        body = json.dumps(arguments)
        events.append(("content_block_start", {"index": index, "content_block": {
            "type": "tool_use", "id": "toolu_%d_%d" % (number, index), "name": name,
            "input": {}}}))
        for at in range(0, len(body), 9):
            events.append(("content_block_delta", {"index": index, "delta": {
                "type": "input_json_delta", "partial_json": body[at:at + 9]}}))
        events.append(("content_block_stop", {"index": index}))
        index += 1
    reason = "tool_use" if answer.get("calls") else "end_turn"
    events.append(("message_delta", {"delta": {"stop_reason": reason},
                                     "usage": {"output_tokens": 10}}))
    events.append(("message_stop", {}))
    return "".join("event: %s\ndata: %s\n\n" % (name, json.dumps(dict(data, type=name)))
                   for name, data in events)


class ModelServer:
    """With `with`: started on a free loopback port, stopped at the end."""

    def __init__(self, script, told=None):
        self.script = script
        self.told = told or {}  # {path: object}: what it says of itself
        self.looked = []  # the paths that it was asked for beside the model
        self.requests = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.path.endswith(("/chat/completions", "/messages")):
                    outer.answer(self, json.loads(body))
                else:
                    self.do_GET()

            def do_GET(self):
                outer.looked.append(self.path)
                known = outer.told.get(self.path)
                known = known() if callable(known) else known
                body = json.dumps({"error": "no"} if known is None else known).encode()
                self.send_response(404 if known is None else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={
            "poll_interval": 0.02})

    @property
    def url(self):
        return "http://127.0.0.1:%d/v1" % self.server.server_address[1]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def next(self, request, headers):
        with self.lock:
            number = len(self.requests)
            self.requests.append({"body": request, "headers": dict(headers)})
            if callable(self.script):
                return number, self.script(request["messages"])
            if number >= len(self.script):
                return number, {"text": "I have nothing more to say."}
            one = self.script[number]
            return number, one(request["messages"]) if callable(one) else one

    def answer(self, handler, request):
        number, answer = self.next(request, handler.headers)
        if "raw" in answer:
            raw = answer["raw"]
            body = raw.get("body", "").encode()
            handler.send_response(raw["status"])
            for name, value in raw.get("headers", {}).items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
            return
        if "drip" in answer:
            # One harmless event after the other, for so many seconds.
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream")
            handler.send_header("Connection", "close")
            handler.end_headers()
            end = time.monotonic() + answer["drip"]
            try:
                while time.monotonic() < end:
                    handler.wfile.write(b": still here\n\n")
                    handler.wfile.flush()
                    time.sleep(0.2)
            except OSError:
                pass
            handler.close_connection = True
            return
        make = anthropic if handler.path.endswith("/messages") else openai
        body = make(answer, number).encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(body[:len(body) // 2] if answer.get("broken") else body)
        handler.close_connection = True


def results(messages):
    """The texts of all results of tools that the model has been given, whichever protocol."""
    found = []
    for one in messages:
        if one["role"] == "tool":
            found.append(one["content"])
        elif isinstance(one["content"], list):
            found += [part["content"] for part in one["content"] if part["type"] == "tool_result"]
    return found
