package internal_test

// mayImport is the whole graph of the repository's packages: what is not
// listed is not allowed. It runs one way, from what faces the world down to
// what a job is, so that each package can be read and tested without those
// above it.
var mayImport = map[string][]string{
	"caddymodule/caddy": {"caddymodule"},
	"caddymodule":       {"internal/api", "internal/api/mount", "internal/api/ops", "internal/apikeys", "internal/comfyui", "internal/config", "internal/egress", "internal/files", "internal/files/s3", "internal/fleet", "internal/hub", "internal/keda", "internal/keyring", "internal/machines", "internal/nearest", "internal/operator", "internal/overflow/endpoints", "internal/queue", "internal/rules", "internal/scale", "internal/scale/ec2", "internal/scale/kubernetes", "internal/schedule", "internal/shell"},
	"agent":             {"internal/agent"},
	"internal/agent":    {"internal/a1111", "internal/comfysim", "internal/durable", "internal/gossip", "internal/fleet", "internal/comfyui", "internal/retry", "internal/tunnel"}, // no simulator
	"comfysim":          {"internal/comfysim", "internal/sim", "internal/sim/simsd"},
	"internal/comfysim": {},                                                                                    // no simulator: the agent has it
	"tools/demo":        {"internal/testing/programs"},                                                         // besides, an ordinary client of ComfyUI's API
	"tools/bench":       {"internal/testing/figure", "internal/testing/freeport", "internal/testing/programs"}, // besides, a client of ComfyUI's API
	"tools/chaos":       {"internal/testing/freeport", "internal/testing/programs", "internal/redis"},

	// The bridge reaches the fleet by the hub's public API only.
	"botbridge":          {},
	"botbridge/e2e":      {}, // the programs, from outside
	"botbridge/world":    {"botbridge/internal/bridge", "botbridge/internal/config", "botbridge/internal/webchat", "system"},
	"botbridge/demobot":  {"botbridge/internal/testing/fakebot", "botbridge/internal/testing/stage", "internal/testing/programs"},
	"botbridge/internal": {},
	"botbridge/internal/bridge": {
		"botbridge/internal/config", "botbridge/internal/conversation", "botbridge/internal/discord", "botbridge/internal/enhance", "botbridge/internal/hubapi", "botbridge/internal/limits",
		"botbridge/internal/locale", "botbridge/internal/outbox", "botbridge/internal/platform", "botbridge/internal/request",
		"botbridge/internal/state", "botbridge/internal/telegram", "botbridge/internal/webchat", "botbridge/internal/workflow", "internal/retry",
	},
	"botbridge/internal/config": {
		"botbridge/internal/conversation", "botbridge/internal/discord", "botbridge/internal/enhance", "botbridge/internal/limits", "botbridge/internal/telegram",
		"botbridge/internal/workflow",
	},
	"botbridge/internal/conversation": {
		"botbridge/internal/enhance", "botbridge/internal/hubapi", "botbridge/internal/limits", "botbridge/internal/locale", "botbridge/internal/outbox",
		"botbridge/internal/platform", "botbridge/internal/request", "botbridge/internal/state", "botbridge/internal/workflow", "internal/retry",
	},
	"botbridge/internal/request": {
		"botbridge/internal/hubapi", "botbridge/internal/locale", "botbridge/internal/outbox", "botbridge/internal/platform",
		"botbridge/internal/state", "botbridge/internal/workflow", "internal/comfyui", "internal/retry",
	},
	"botbridge/internal/locale":        {"botbridge/internal/platform"},
	"botbridge/internal/limits":        {"botbridge/internal/platform", "botbridge/internal/state"},
	"botbridge/internal/outbox":        {"botbridge/internal/platform", "internal/retry"},
	"botbridge/internal/telegram":      {"botbridge/internal/platform", "internal/retry"},
	"botbridge/internal/webchat":       {"botbridge/internal/platform"},
	"botbridge/internal/discord":       {"botbridge/internal/platform", "internal/retry"},
	"botbridge/internal/hubapi":        {"internal/comfyui"},
	"botbridge/internal/state":         {"internal/redis"},
	"botbridge/internal/workflow":      {"internal/nearest", "internal/pyjson"},
	"botbridge/internal/testing/stage": {"botbridge/internal/testing/fakebot", "botbridge/internal/testing/fakediscord", "internal/testing/freeport", "internal/testing/programs"},
	"e2e":                              {}, // the programs, from outside
	"system":                           {"internal/agent", "internal/api", "internal/api/mount", "internal/config", "internal/egress", "internal/files", "internal/fleet", "internal/gossip", "internal/hub", "internal/job", "internal/overflow/overflowtest", "internal/queue", "internal/redis", "internal/redis/engine", "internal/scale", "internal/sim", "system/network"},
	"internal/sim/simtest":             {"system/network/loopback"},
	"system/waits":                     {"internal/config", "internal/job", "internal/sim", "internal/testing/figure", "system"},
	"system/network":                   {},
	"system/network/loopback":          {"system/network"},
	"docker":                           {}, // its compose file

	"internal/api": {
		"internal/aiohttp", "internal/apikeys", "internal/budget", "internal/catalog", "internal/comfyui", "internal/files", "internal/intake", "internal/job", "internal/keyring",
		"internal/pyjson", "internal/tenantlru", "internal/redis", "internal/refusal", "internal/stream",
	},
	"internal/api/comfy": {
		"internal/aiohttp", "internal/api", "internal/budget", "internal/catalog", "internal/classes", "internal/comfyui", "internal/config", "internal/ends", "internal/files", "internal/fleet", "internal/intake", "internal/job", "internal/lastknown", "internal/logs", "internal/pyjson", "internal/python", "internal/refusal", "internal/stream", "internal/submit", "internal/tenantlru", "internal/userdata", "internal/view", "internal/webui",
	},
	"internal/api/apitest": {"internal/aiohttp", "internal/api", "internal/apikeys", "internal/comfyui", "internal/intake", "internal/job", "internal/stream", "internal/submit", "internal/view"},
	"internal/api/mount":   {"internal/api", "internal/apikeys", "internal/hub", "internal/view"},
	"internal/api/ops":     {"internal/api", "internal/catalog", "internal/comfyui", "internal/config", "internal/files", "internal/fleet", "internal/hints", "internal/job", "internal/links", "internal/logs", "internal/overflow", "internal/pyjson", "internal/queue", "internal/refusal", "internal/scale", "internal/submit", "internal/tenantlru", "internal/tunnel", "internal/view", "internal/webui/origin"},
	"internal/api/page":    {"internal/api"},
	"internal/api/pull":    {"internal/api", "internal/budget", "internal/config", "internal/facade", "internal/fleet", "internal/intake", "internal/pyjson", "internal/tunnel", "internal/worker"},
	"internal/api/plain":   {"internal/a1111", "internal/api", "internal/catalog", "internal/comfyui", "internal/config", "internal/convert", "internal/intake", "internal/job", "internal/pyjson", "internal/refusal", "internal/submit", "internal/view"},
	"internal/api/comfyv2": {"internal/api", "internal/catalog", "internal/comfyui", "internal/config", "internal/files", "internal/intake", "internal/job", "internal/links", "internal/pyjson", "internal/refusal", "internal/submit", "internal/view"},
	"internal/api/sdapi":   {"internal/a1111", "internal/aiohttp", "internal/api", "internal/catalog", "internal/comfyui", "internal/config", "internal/intake", "internal/job", "internal/links", "internal/pyjson", "internal/refusal", "internal/retry", "internal/submit", "internal/userdata", "internal/view"},
	"internal/hub": { // no internal/api: it creates what every dialect uses
		"internal/apikeys", "internal/budget", "internal/catalog", "internal/classes", "internal/comfyui", "internal/config", "internal/datadir", "internal/direct", "internal/dispatch", "internal/ends", "internal/facade", "internal/files", "internal/fleet", "internal/gossip", "internal/health", "internal/intake", "internal/job", "internal/keyring", "internal/lastknown", "internal/links", "internal/logs", "internal/machines", "internal/members", "internal/metrics", "internal/operator", "internal/overflow/endpoints", "internal/peers", "internal/pins", "internal/queue", "internal/redis", "internal/retention", "internal/roster", "internal/run", "internal/scale", "internal/scale/demand", "internal/schedule", "internal/stats", "internal/stream", "internal/submit", "internal/tenants", "internal/traces", "internal/tunnel", "internal/upstream", "internal/userdata", "internal/view", "internal/webui", "internal/webui/origin", "internal/worker",
	},
	"internal/health":       {"internal/apikeys", "internal/catalog", "internal/comfyui", "internal/config", "internal/dispatch", "internal/files", "internal/fleet", "internal/gossip", "internal/keyring", "internal/machines", "internal/metrics", "internal/panics", "internal/redis", "internal/retention", "internal/retry", "internal/schedule", "internal/webui/origin"},
	"internal/datadir":      {"internal/durable"},
	"internal/operator":     {"internal/comfyui", "internal/config", "internal/dispatch", "internal/fleet", "internal/job", "internal/lastknown", "internal/machines", "internal/queue", "internal/retry", "internal/roster", "internal/view", "internal/webui/origin"},
	"internal/members":      {"internal/config", "internal/fleet", "internal/gossip", "internal/keyring", "internal/pins"},
	"internal/upstream":     {"internal/comfyui", "internal/config", "internal/dispatch", "internal/fleet", "internal/pyjson", "internal/stream", "internal/submit", "internal/tenantlru", "internal/view", "internal/webui/origin"},
	"internal/traces":       {"internal/config"},
	"internal/webui/origin": {"internal/comfyui", "internal/config", "internal/fleet", "internal/pins", "internal/retry"},
	"internal/retention":    {"internal/apikeys", "internal/comfyui", "internal/config", "internal/files", "internal/job", "internal/keyring", "internal/panics", "internal/queue", "internal/redis", "internal/tenants"},
	"internal/ends":         {"internal/comfyui", "internal/job", "internal/queue", "internal/stream"},
	"internal/view":         {"internal/catalog", "internal/classes", "internal/comfyui", "internal/config", "internal/dispatch", "internal/files", "internal/fleet", "internal/hints", "internal/job", "internal/logs", "internal/panics", "internal/pyjson", "internal/queue", "internal/redis", "internal/refusal", "internal/resultcache", "internal/run", "internal/stats", "internal/stream", "internal/tenants", "internal/webui/origin"},
	"internal/classes":      {"internal/catalog", "internal/comfyui", "internal/config", "internal/dispatch", "internal/files", "internal/fleet", "internal/job", "internal/pyjson", "internal/redis", "internal/roster"},
	"internal/submit":       {"internal/budget", "internal/callbacks", "internal/catalog", "internal/classes", "internal/comfyui", "internal/config", "internal/dispatch", "internal/egress", "internal/ends", "internal/files", "internal/job", "internal/pyjson", "internal/queue", "internal/refusal", "internal/resultcache", "internal/rules", "internal/run", "internal/schedule", "internal/stream", "internal/traces"},
	"internal/tenants":      {"internal/apikeys", "internal/config", "internal/job", "internal/redis", "internal/rules"},
	"internal/links":        {"internal/files", "internal/job", "internal/keyring"},
	"internal/config":       {"internal/comfyui", "internal/egress", "internal/files", "internal/fleet", "internal/gossip", "internal/job", "internal/overflow", "internal/rules", "internal/scale", "internal/schedule"},
	"internal/dispatch": {
		"internal/catalog", "internal/comfyui", "internal/files", "internal/fleet", "internal/instance",
		"internal/job", "internal/learned", "internal/lease", "internal/pyjson", "internal/queue", "internal/run", "internal/tenantlru", "internal/panics", "internal/retry", "internal/schedule", "internal/stream", "internal/traces",
	},
	"internal/run": { // no dispatch: it is given what it needs to know of the rest of the fleet
		"internal/catalog", "internal/comfyui", "internal/files", "internal/fleet", "internal/instance", "internal/job", "internal/learned", "internal/panics", "internal/pyjson",
		"internal/queue", "internal/resultcache", "internal/retry", "internal/schedule", "internal/split", "internal/stream", "internal/traces",
	},
	"internal/lease":   {"internal/instance", "internal/job", "internal/panics", "internal/queue", "internal/retry", "internal/run"},
	"internal/learned": {"internal/instance", "internal/queue", "internal/schedule"},

	"internal/instance": { // no dispatch, and no run: it is told only that somebody has the instance
		"internal/catalog", "internal/comfyui", "internal/fleet", "internal/job", "internal/panics", "internal/pyjson", "internal/retry", "internal/schedule", "internal/stream",
	},

	"internal/metrics": {"internal/catalog", "internal/fleet", "internal/job", "internal/overflow", "internal/panics", "internal/pyjson", "internal/redis", "internal/refusal", "internal/run", "internal/scale", "internal/schedule", "internal/stats"},
	"internal/catalog": {"internal/job", "internal/pyjson", "internal/python"},
	"internal/split":   {"internal/catalog", "internal/pyjson", "internal/resultcache"},

	"internal/hints":       {"internal/pyjson"},
	"internal/resultcache": {"internal/pyjson"},

	"internal/pins":     {"internal/keyring", "internal/redis"},
	"internal/machines": {"internal/keyring", "internal/redis", "internal/tunnel"},
	"internal/stats":    {"internal/redis"},
	"internal/rules":    {"internal/catalog", "internal/job", "internal/pyjson"},
	"internal/apikeys":  {"internal/keyring", "internal/redis", "internal/retry"},
	"internal/tunnel":   {"internal/fleet"},
	"internal/facade":   {"internal/pyjson"},
	"internal/worker":   {"internal/catalog", "internal/comfyui", "internal/direct", "internal/facade", "internal/fleet", "internal/pyjson"},
	"internal/overflow": {"internal/egress", "internal/facade", "internal/panics", "internal/pyjson", "internal/redis", "internal/retry", "internal/stats"},

	"internal/overflow/endpoints":    {"internal/catalog", "internal/comfyui", "internal/config", "internal/direct", "internal/dispatch", "internal/facade", "internal/fleet", "internal/job", "internal/overflow", "internal/panics", "internal/queue", "internal/redis"},
	"internal/overflow/overflowtest": {},

	"internal/direct":           {"internal/a1111", "internal/comfyui", "internal/config", "internal/facade", "internal/fleet"},
	"internal/a1111":            {"internal/pyjson", "internal/retry", "internal/facade"},
	"internal/comfyui":          {"internal/aiohttp", "internal/job", "internal/pyjson", "internal/retry"},
	"internal/peers":            {"internal/redis", "internal/stream"},
	"internal/files/s3":         {},
	"internal/files":            {"internal/aiohttp", "internal/budget", "internal/comfyui", "internal/durable", "internal/job", "internal/notebook", "internal/picture", "internal/pyjson", "internal/redis", "internal/panics", "internal/retry", "internal/stats"},
	"internal/picture":          {"internal/webp"},
	"internal/intake":           {"internal/budget", "internal/pyjson"},
	"internal/budget":           {}, // standard library only
	"internal/fleet":            {},
	"internal/lastknown":        {"internal/catalog", "internal/comfyui", "internal/files"},
	"internal/roster":           {"internal/catalog", "internal/comfyui", "internal/files", "internal/fleet", "internal/redis"},
	"internal/webui":            {"internal/comfyui", "internal/files", "internal/panics", "internal/retry"},
	"internal/logs":             {"internal/pyjson", "internal/stream"},
	"internal/gossip":           {"internal/durable", "internal/fleet", "internal/retry"},
	"internal/schedule":         {"internal/job", "internal/pyjson"},
	"internal/scale":            {"internal/egress", "internal/panics", "internal/redis", "internal/schedule"},
	"internal/keda":             {"internal/scale"},
	"internal/scale/ec2":        {"internal/scale"},
	"internal/scale/kubernetes": {"internal/scale"},
	"internal/scale/demand":     {"internal/catalog", "internal/dispatch", "internal/fleet", "internal/job", "internal/keyring", "internal/machines", "internal/queue", "internal/scale", "internal/schedule"},
	"internal/queue":            {"internal/job", "internal/keyring", "internal/notebook", "internal/pyjson", "internal/redis", "internal/stats"},
	"internal/stream":           {"internal/aiohttp", "internal/budget", "internal/job", "internal/pyjson", "internal/tenantlru", "internal/retry"},
	"internal/sim":              {"internal/pyjson", "internal/python"},
	"internal/sim/simsd":        {"internal/pyjson"},
	"internal/userdata":         {"internal/files", "internal/pyjson"},
	"internal/python":           {"internal/pyjson"},
	"internal/convert":          {"internal/pyjson"},
	"internal/shell":            {"internal/durable", "internal/nearest", "internal/pyjson", "internal/redis", "internal/retry"}, // besides, a client of the plain job API

	"internal/keyring":             {},
	"internal/nearest":             {},
	"internal/keyring/keyringtest": {"internal/keyring"},
	"internal/aiohttp":             {}, // standard library only
	"internal/aiohttp/aiohttptest": {},
	"internal/redis":               {"internal/redis/engine", "internal/retry"},
	"internal/redis/engine":        {"internal/durable"},
	"internal/durable":             {},
	"internal/egress":              {},
	"internal/notebook":            {"internal/retry"},
	"internal/callbacks":           {"internal/egress", "internal/queue", "internal/panics"},
	"internal/panics":              {},
	"internal/retry":               {},
	"internal/redis/redistest":     {"internal/redis", "internal/redis/engine", "internal/testing/freeport", "internal/testing/programs"},
	"internal/testing/freeport":    {},
	"internal/testing/programs":    {"internal/testing/freeport"},
	"internal/tenantlru":           {},
	"internal/testing/leaktest":    {},
	"internal/testing/beside":      {},
	"internal/testing/figure":      {},
	"internal/testing/must":        {},
	"internal/logs/logtest":        {},
	"internal/webp":                {},
	"internal/job":                 {}, // standard library only
	"internal/refusal":             {},
	"internal/pyjson":              {},

	"internal/testing/programs/programstest": {"internal/testing/programs"},
}
