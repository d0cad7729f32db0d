package hub_test

import "github.com/comfyhub/comfyhub/internal/sim/replay"

const (
	older = "0.3.64"
	newer = "0.33.0"
)

// differences are the only ones that the replay of the recordings may find, by how their row in
// docs/compatibility.md begins.
var differences = map[string][]place{
	"`/experiment/models` lists": {in("system", "new-routes").behind(3).under("/experiment/models")},
	"Several prompts": {
		in(overlapping...).behind(3).under("/queue"),
		in(overlapping...).behind(3).under("/history"),
		in("jobs", "jobs-cancel", "jobs-cancel-many", "jobs-odd", "queue-shape").behind(3).under("/jobs"),
		in("jobs-cancel").behind(3).at("detail of b").its(replay.Status), // it ran, and has an entry
		in("prompt-id-duplicate", "jobs-odd").behind(3).at("socket c"),
	},
	"When prompts end": {in(overlapping...).behind(3).under("/prompt").lines(`^ *number: \d+$`)},
	"A client that reconnects": {
		in("ws-reconnect").at("socket two, without flags"),
		in("ws-reconnect").at("socket three, with flags"),
		in("ws-reconnect-idle").at("socket two"),
	},
	"If two sockets": {in("ws-reconnect").at("socket four, while three is open"), in("ws-same-client-id").at("socket new")},
	"Any non-empty string": {
		in("prompt-id").under("/prompt").since(newer).whole(),
		in("prompt-id").under("/prompt").since(older),
		in("prompt-id").under("/history").since(newer),
		in("prompt-id").at("socket c").since(older),
		in("validation-new").at("prompt_id bad and prompt bad").its(replay.Body),
	},
	"A prompt with the":  {in("prompt-id-duplicate").at("id2 with number 7 again").whole()},
	"If two waiting":     {in("prompt-id-duplicate").at("queue after it"), in("prompt-id-duplicate").at("history holds one entry")},
	"`queue_pending` is": {in("order-front-number").at("queue: list order is heap order, not run order"), in("order-front-number").at("history")},
	"If `number` is": {
		in("jobs-odd").at("number nan").lines(`NaN|1e\+308`),
		in("jobs-odd").at("number inf").lines(`Infinity|1e\+308`),
		in("order-front-number").at("number NaN").lines(`NaN|1e\+308`),
		in("order-front-number").at("number inf").lines(`Infinity|1e\+308`),
		in("jobs-odd").at("list after: number nan").lines(`NaN|1e\+308`),
		in("jobs-odd").at("list after: number inf").lines(`Infinity|1e\+308`),
	},
	"`GET /api/jobs`":   {in("jobs-odd").under("/jobs").whole()},
	"`/api/jobs` works": {in("routes").at("GET /api/jobs").since(older).whole()},
	"A waiting or running": {
		in("jobs").since(newer).at("detail: run"),
		in("jobs").since(newer).at("detail: pend1"),
		in("jobs").since(newer).at("detail: pend2"),
		in("jobs-cancel").since(newer).at("detail right after it"),
		in("jobs-cancel").since(newer).at("detail while it still runs"),
	},
	"API keys in `extra_data`": {in("queue").at("queue").since(older).lines("auth_token_comfy_org|api_key_comfy_org").behind(1)},
	"A class that ComfyUI": {
		in("node-replacement").at("an old class without _meta: 500").whole(),
		in("node-replacement").at("reached by an output of another type: the error speaks of the new class (CONDITIONING)").whole(),
		in("node-replacement").under("/queue"),
		in("node-replacement").under("/history"),
		in("validation-new").at("an old class that is gone is rewritten: SDV_img2vid_Conditioning").whole(),
		in("validation-new").at("history"), // shows one more prompt
	},
	"`Sec-Fetch-Site: cross-site`": {in("host-origin").at("Sec-Fetch-Site cross-site without Origin").since(older).whole()},
	"`Origin` is compared": {
		in("host-origin").at("Host is a non-loopback address, Origin other").whole(),
		in("host-origin").at("Host unresolvable name, Origin other").whole(),
		in("fetch-site").at("Host not loopback, other Origin").whole(),
	},
	"A foreign `Origin`": {
		in("host-origin").at("other Origin").its(replay.Headers, replay.Body),
		in("host-origin").at("other port").its(replay.Headers, replay.Body),
		in("host-origin").at("localhost vs 127.0.0.1").its(replay.Headers, replay.Body),
		in("host-origin").at("Host localhost, Origin other").its(replay.Headers, replay.Body),
		in("host-origin").at("Host [::1], Origin other").its(replay.Headers, replay.Body),
		in("host-origin").at("POST /prompt other Origin").its(replay.Headers, replay.Body),
		in("host-origin").at("OPTIONS preflight other origin").its(replay.Headers, replay.Body),
		in("host-origin").at("X-Forwarded-Host is not looked at").its(replay.Headers, replay.Body),
		in("fetch-site").at("same-origin, other Origin").its(replay.Headers, replay.Body),
		in("fetch-site").at("other Origin").its(replay.Headers, replay.Body),
		in("fetch-site").at("other port").its(replay.Headers, replay.Body),
	},
	"A socket opened":    {in("fetch-site").at("socket ws same-site").its(replay.Status, replay.Frames, replay.Code)},
	"If CORS is on for":  {in("variant-cors-compress").at("socket ws-other-origin").its(replay.Status, replay.Frames, replay.Code)},
	"A path that begins": {in("routes").at("GET //queue").whole()},
	"Every answer but":   {place{}.its(replay.Headers).lines(contained)},
	"Files of users": {
		in("view", "preview-image", "upload", "userdata").since(older).its(replay.Headers).
			lines("^(X-Content-Type-Options|Content-Disposition|Content-Type|Cache-Control|Vary): "),
	},
	"Listings carry": {place{}.its(replay.Headers).lines(`^(Etag: \.\.\.|Cache-Control: no-cache)$`)},
	"304 answers have": {
		in("view").at("If-None-Match").its(replay.Headers).lines("^Content-Type: "),
		in("view").at("If-Modified-Since").its(replay.Headers).lines("^Content-Type: "),
	},
	"If a client closes": {in("ws-connect").at("socket clientid").its(replay.Code)},
	"Assets (`--enable-assets`": {
		in("variant-assets").under("/assets").whole(),
		in("variant-assets").under("/tags").whole(),
		in("variant-assets").at("view by hash").whole(),
		in("variant-assets").under("/features"),
		in("variant-assets").under("/upload/image"),
		in("variant-assets").under("/history"),
		in("variant-assets").under("/jobs"),
	},
	"The hub itself":    {in("variant-cors-compress").its(replay.Headers).lines(`^(Content-Encoding: deflate|Etag: \.\.\.|Cache-Control: no-cache)$`)},
	"The text of a 413": {in("large-body").its(replay.Body).lines("^Maximum request body size 104857600 exceeded, actual body size ")},
	"The slashes in": {
		in("userdata").at("put with an unencoded slash").whole(),
		in("userdata").at("get with an unencoded slash").whole(),
		in("userdata").at("list dir=workflows"), // which has that file
		in("userdata").at("list dir=workflows&recurse=true"),
		in("userdata").at("list dir=workflows&full_info=true"),
		in("userdata").at("list dir=workflows&split=true"),
		in("userdata").at("list dir=.&recurse=true"),
		in("userdata").under("/v2/userdata"),
	},
	"Users are told": {
		in("variant-multi-user").under("/users"),
		in("variant-multi-user").under("/settings").whole(),
		in("variant-multi-user").under("/userdata").whole(),
	},
	"Not caused by the": {
		in("system", "new-routes").under("/system_stats"),
		in("system", "new-routes").under("/internal/files"),
		in("new-routes").under("/global_subgraphs"),
		in("jobs").under("/jobs?sort_by=execution_duration"),
	},
}

// notPlayed lists the scenarios that cannot be played against a hub, with the reasons.
var notPlayed = map[string]string{
	"server-stop-sigint":  "a hub that stops keeps queue and history; see the tests of faults",
	"server-stop-sigkill": "as above",
	"server-stop-sigterm": "as above",
	"large-body":          "sends hundreds of megabytes; see the tests of bodies, and those of package intake",
	"stalled-client":      "a client that does not read delays nobody; see package stream",
}
