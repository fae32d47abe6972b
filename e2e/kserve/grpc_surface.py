"""All that is no inference: who is there, what models take, what is not served."""


from cases import MODEL, equal, metric, page, refused, run
from grpc_client import channel, client, model_config_pb2, pb, prompt, stub

FIXED_INPUTS = [("text_input", "BYTES", [1]), ("streaming", "BOOL", [1])]
FIXED_OUTPUTS = [("text_output", "BYTES", [-1]), ("finish_reason", "BYTES", [-1])]
ABSENT = "no/such"


def live_and_ready():
    assert client.is_server_live() and client.is_server_ready()


def model_ready():
    assert client.is_model_ready(MODEL) is True
    assert client.is_model_ready(MODEL, "1") and client.is_model_ready(MODEL, "7")
    assert client.is_model_ready(ABSENT) is False


def server_metadata():
    m = client.get_server_metadata()
    equal(m.name, "dynago")
    assert m.version
    for name in "model_configuration", "parameters", "statistics", "binary_tensor_data":
        assert name in m.extensions, m.extensions
    for name in m.extensions:
        assert not any(w in name for w in ("shared_memory", "sequence", "trace", "logging", "model_repository(")), name


def model_metadata():
    m = client.get_model_metadata(MODEL)
    equal((m.name, list(m.versions), m.platform), (MODEL, ["1"], "dynamo"))
    equal([(t.name, t.datatype, list(t.shape)) for t in m.inputs], FIXED_INPUTS)
    equal([(t.name, t.datatype, list(t.shape)) for t in m.outputs], FIXED_OUTPUTS)
    equal(client.get_model_metadata(MODEL, "3", as_json=True)["outputs"][0]["shape"], ["-1"])


def model_config():
    c = client.get_model_config(MODEL).config
    kinds = model_config_pb2.DataType
    equal((c.name, c.platform, c.backend, c.max_batch_size), (MODEL, "dynamo", "dynamo", 0))
    equal([(t.name, kinds.Name(t.data_type), list(t.dims), t.optional) for t in c.input],
          [("text_input", "TYPE_STRING", [1], False), ("streaming", "TYPE_BOOL", [1], True)])
    equal([(t.name, kinds.Name(t.data_type), list(t.dims)) for t in c.output],
          [("text_output", "TYPE_STRING", [-1]), ("finish_reason", "TYPE_STRING", [-1])])
    assert not c.HasField("model_transaction_policy") and c.WhichOneof("scheduling_choice") is None, c
    equal(client.get_model_config(MODEL, as_json=True)["config"]["backend"], "dynamo")


def unknown_model():
    for call in client.get_model_metadata, client.get_model_config:
        with refused("NOT_FOUND", f"Model '{ABSENT}' not found"):
            call(ABSENT)


def repository_index():
    index = client.get_model_repository_index()
    equal([(m.name, m.version, m.state, m.reason) for m in index.models], [(MODEL, "1", "READY", "")])
    equal(len(stub.RepositoryIndex(pb.RepositoryIndexRequest(ready=True)).models), 1)


def repository_index_of_another():
    import grpc

    try:
        stub.RepositoryIndex(pb.RepositoryIndexRequest(repository_name="mine"))
    except grpc.RpcError as e:
        equal((e.code(), e.details()), (grpc.StatusCode.UNIMPLEMENTED, "'repository_name' specification is not supported"))
        return
    raise AssertionError("it was answered")


def statistics():
    def of(name):
        (s,) = client.get_inference_statistics(name).model_stats
        return s

    before = of(MODEL)
    equal((before.name, before.version), (MODEL, "1"))
    for _ in range(3):
        client.infer(MODEL, prompt("hello"), parameters={"max_tokens": 4})
    with refused("INVALID_ARGUMENT"):
        client.infer(MODEL, prompt("hello", streaming=True))
    after = of(MODEL)
    equal(after.inference_count - before.inference_count, 3)
    equal(after.execution_count - before.execution_count, 3)
    was, now = before.inference_stats, after.inference_stats
    equal((now.success.count - was.success.count, now.fail.count - was.fail.count), (3, 1))
    equal(now.compute_infer.count - was.compute_infer.count, 3)
    assert now.success.ns > was.success.ns and now.success.ns >= now.compute_infer.ns, now
    assert after.last_inference > 1_600_000_000_000, after.last_inference
    assert MODEL in [s.name for s in client.get_inference_statistics().model_stats]


def statistics_of_none():
    with refused("NOT_FOUND", ABSENT):
        client.get_inference_statistics(ABSENT)


def what_is_not_served():
    for method, call in {
        "RepositoryModelLoad": lambda: client.load_model(MODEL, config="{}", files={"file:1/model.bin": b"\x00"}),
        "RepositoryModelUnload": lambda: client.unload_model(MODEL, unload_dependents=True),
        "SystemSharedMemoryStatus": lambda: client.get_system_shared_memory_status(),
        "SystemSharedMemoryRegister": lambda: client.register_system_shared_memory("r", "/r", 64),
        "SystemSharedMemoryUnregister": lambda: client.unregister_system_shared_memory(),
        "CudaSharedMemoryStatus": lambda: client.get_cuda_shared_memory_status("r"),
        "CudaSharedMemoryRegister": lambda: client.register_cuda_shared_memory("r", b"aGFuZGxl", 0, 64),
        "CudaSharedMemoryUnregister": lambda: client.unregister_cuda_shared_memory("r"),
        "TraceSetting": lambda: client.get_trace_settings(MODEL),
        "TraceSetting ": lambda: client.update_trace_settings(MODEL, {"trace_rate": "1"}),
        "LogSettings": lambda: client.get_log_settings(),
        "LogSettings ": lambda: client.update_log_settings({"log_verbose_level": 1}),
    }.items():
        with refused("UNIMPLEMENTED", method.strip() + " is not supported by this server"):
            call()


def health():
    """Of gRPC itself, by the bytes of its messages."""
    import grpc

    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    for name in b"", b"inference.GRPCInferenceService":
        equal(check(b"\x0a" + bytes([len(name)]) + name), b"\x08\x01")
    try:
        check(b"\x0a\x04none")
    except grpc.RpcError as e:
        equal(e.code(), grpc.StatusCode.NOT_FOUND)
        return
    raise AssertionError("an unknown service is healthy")


def metrics():
    client.infer(MODEL, prompt("hello"), parameters={"max_tokens": 2})
    labels = {"model": MODEL, "endpoint": "completions", "request_type": "unary"}
    assert metric("dynamo_frontend_requests_started_total", **labels) >= 1
    assert metric("dynamo_frontend_requests_total", status="success", error_type="", **labels) >= 1
    assert metric("dynamo_frontend_time_to_first_token_seconds_count", model=MODEL) >= 1
    with refused("NOT_FOUND", ABSENT):
        client.infer(ABSENT, prompt("hello"))
    assert metric("dynamo_frontend_requests_total", status="error", error_type="not_found") >= 1
    with refused("INVALID_ARGUMENT"):
        client.infer(MODEL, prompt("hello", nonsense=True))
    assert metric("dynamo_frontend_requests_total", status="error", error_type="validation", model=MODEL) >= 1


def side_server():
    import os
    import urllib.request

    side = os.environ["DYNAGO_SIDE"]
    for path, text in ("/metrics", "dynamo_frontend_requests_total"), ("/live", '"live"'), ("/health", '"healthy"'), ("/v1/models", MODEL):
        with urllib.request.urlopen(side + path) as answer:
            assert text in answer.read().decode(), path
    assert "dynamo_frontend_requests_total" in page("/metrics")


run(
    live_and_ready, model_ready, server_metadata, model_metadata, model_config, unknown_model, repository_index,
    repository_index_of_another, statistics, statistics_of_none, what_is_not_served, health, metrics, side_server,
)
