package caddymodule

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const separator = "----------\n"

func adapt(t *testing.T, text string) ([]byte, error) {
	t.Helper()
	result, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	return result, err
}

func TestAdapt(t *testing.T) {
	t.Parallel()
	files := must.Get(filepath.Glob("testdata/adapt/*.caddyfiletest"))(t)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			content := must.Get(os.ReadFile(file))(t)
			text, want, _ := strings.Cut(string(content), separator)
			got := must.Get(adapt(t, text))(t)
			if *update {
				var pretty bytes.Buffer
				require.NoError(t, json.Indent(&pretty, got, "", "\t"))
				require.NoError(t, os.WriteFile(file, []byte(text+separator+pretty.String()+"\n"), 0o644))
				return
			}
			require.JSONEq(t, want, string(got))
		})
	}
}

func TestA1111Instances(t *testing.T) {
	t.Parallel()
	var a App
	require.NoError(t, a.UnmarshalCaddyfile(caddyfile.NewTestDispenser("comfyhub {\ninstance http://a:1\ninstance http://a:2 a1111\ninstance http://a:3 {\ngpu left\na1111\n}\n}")))
	require.Equal(t, []string{"http://a:1"}, a.Instances)
	require.Equal(t, []string{"http://a:2", "http://a:3"}, a.A1111)
	require.Equal(t, GPUs{{"http://a:3", "left"}}, a.GPUs)
	require.Equal(t, a.A1111, a.hubSettings().A1111)
}

func TestMistakesAreToldWithFileAndLine(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ lines, want string }{
		"unknown word":             {"colour red", `unrecognized subdirective "colour"`},
		"unknown word, bare":       {"colour", `unrecognized subdirective "colour", at`},
		"misspelt word":            {"histroy 5", `unrecognized subdirective "histroy": did you mean history?`},
		"misspelt word in a block": {"gossip {\nbnd 127.0.0.1:1\n}", `unrecognized subdirective "bnd": did you mean bind?`},
		"misspelt word of its own": {"scale gpu {\nprovidr exec x\n}", `"providr": did you mean provider?`},
		"misspelt rule":            {"rules {\nalow model x\n}", `"alow": did you mean allow?`},
		"word of a site":           {"events live", `unrecognized subdirective "events": it belongs in comfyhub in a site, at`},
		"word of a block":          {"age 1d", `"age": it belongs in history { ... }`},
		"word of several blocks":   {"budget 5/day", `"budget": it belongs in scale { ... }, or in overflow { ... }`},
		"word of the fleet":        {"gossip {\nmax_queue 5\n}", `"max_queue": it belongs in the global option comfyhub`},
		"missing argument":         {"redis", "redis takes one argument, not 0"},
		"too many arguments":       {"data a b", "data takes one argument, not 2"},
		"word twice":               {"max_queue 1\nmax_queue 1", "max_queue is given twice"},
		"block on a plain word":    {"data here {\nx\n}", "data takes no block"},
		"scale without a class":    {"scale {\nmax 1\n}", "scale takes the name of a class"},
		"scale without a block":    {"scale gpu", "scale takes a block"},
		"scale without max":        {"scale gpu {\nmin 0\n}", "scale: gpu: max is needed"},
		"scale with too much":      {"scale gpu {\nmax 1001\n}", "scale: gpu: max is needed, from 1 to 1000"},
		"scale with min over max":  {"scale gpu {\nmax 1\nmin 2\n}", "scale: gpu: min is more than max"},
		"scale with a bad min":     {"scale gpu {\nmax 1\nmin some\n}", `min: "some" is not a whole number`},
		"scale twice":              {"scale gpu {\nmax 1\n}\nscale gpu {\nmax 2\n}", "scale: gpu is given twice"},
		"scale with a bad name":    {"scale g/p {\nmax 1\n}", "a class is named with letters"},
		"scale without a price":    {"scale gpu {\nmax 1\nbudget 5/day\n}", "scale: gpu: budget needs a price"},
		"scale with a bad price":   {"scale gpu {\nmax 1\nprice 5/day\n}", `price: "5/day" is not an amount of money such as 20/h`},
		"scale with a free price":  {"scale gpu {\nmax 1\nprice NaN/h\n}", `price: "NaN/h" is not an amount of money`},
		"scale by nothing known":   {"scale gpu {\nmax 1\nprovider cloud\n}", `provider: "cloud" is not one of exec, webhook, kubernetes, ec2`},
		"scale by a bare webhook":  {"scale gpu {\nmax 1\nprovider webhook https://example.com\n}", "provider webhook takes a URL and a secret"},
		"scale by a plain webhook": {"scale gpu {\nmax 1\nprovider webhook http://example.com {env.S}\n}", "the webhook's URL is not https"},
		"scale by a shown secret":  {"scale gpu {\nmax 1\nprovider webhook https://example.com sixteen-bytes-or-more\n}", "must come from {env.NAME} or {file./path}"},
		"scale by no program":      {"scale gpu {\nmax 1\nprovider exec\n}", "provider exec takes a program"},
		"redis of another scheme":  {"redis http://localhost", "redis: not the scheme of a Redis URL"},
		"redis without scheme":     {"redis localhost:6379", `redis: neither "embedded" nor a URL`},
		"redis without host":       {"redis redis://", "redis: the URL names no host"},
		"storage of no kind":       {"storage ftp://host/x", "storage: neither a folder nor"},
		"storage with a password":  {"storage s3://key:hunter2@bucket", "storage: credentials belong in the environment"},
		"storage without bucket":   {"storage s3://?region=x", "storage: the URL names no bucket"},
		"secret of nothing":        {"secret", "wrong argument count"},
		"secret too short":         {"secret hunter2", "secret: shorter than 16 bytes"},
		"an older one too short":   {"secret {env.NEW} hunter2", "secret: shorter than 16 bytes"},
		"secret with a block":      {"secret {env.NEW} {\nx\n}", "secret takes no block"},
		"number":                   {"max_attempts many", `max_attempts: "many" is not a whole number above 0`},
		"zero":                     {"max_queue 0", `max_queue: "0" is not a whole number above 0`},
		"negative":                 {"history -1", `history: "-1" is not a whole number above 0`},
		"history of nothing":       {"history", "history takes a number or a block"},
		"history: an empty block":  {"history {\n}", "history takes a number or a block"},
		"history: unknown word":    {"history {\ncolour 1\n}", `unrecognized subdirective "colour"`},
		"history: twice":           {"history {\nage 1d\nage 1d\n}", "age is given twice"},
		"history: age":             {"history {\nage 5\n}", `age: "5" is not a duration`},
		"history: size":            {"history {\nsize big\n}", `size: "big" is not a size`},
		"history: both":            {"history 5 {\nage 1d\n}", "history takes no block"},
		"redis replicas: none":     {"redis_replicas 0", `"0" is not a whole number above 0`},
		"lookahead":                {"lookahead 2", `lookahead: "2" is not one of 0, 1`},
		"order":                    {"order lifo", `order: "lifo" is not one of fair, fifo`},
		"overtaking":               {"overtaking 5", `overtaking: "5" is not a duration`},
		"preempt: nothing":         {"preempt", "wrong argument count"},
		"preempt: too much":        {"preempt bulk 5s 6s", "wrong argument count"},
		"preempt: another band":    {"preempt normal", `preempt: "normal" is not one of bulk`},
		"preempt: no duration":     {"preempt bulk soon", `preempt: "soon" is not a duration`},
		"operators: nobody":        {"operators", "wrong argument count"},
		"primary: nobody":          {"primary", "wrong argument count"},
		"secrets_to: nobody":       {"secrets_to", "wrong argument count"},
		"secrets_to: a bad URL":    {"secrets_to http://", "secrets_to: "},
		"primary: twice":           {"primary a a", "a is given twice"},
		"operators: no name":       {`operators ada ""`, "operators: an operator has no name"},
		"operators: twice":         {"operators ada bob ada", "operators: ada is given twice"},
		"operators: a block":       {"operators ada {\nx\n}", "operators takes no block"},
		"rules: nothing":           {"rules", "rules: nothing is denied"},
		"rules: an empty block":    {"rules ada {\n}", "rules: nothing is denied"},
		"rules: an unknown word":   {"rules {\nforbid class_type X\n}", `unrecognized subdirective "forbid"`},
		"rules: of what":           {"rules {\ndeny class X\n}", `deny: "class" is not one of class_type, model`},
		"rules: deny nothing":      {"rules {\ndeny model\n}", "deny: want what it is about"},
		"rules: an unknown bound":  {"rules {\nmax depth 4\n}", `rules: max: "depth" is not one of width, height, steps, batch, length`},
		"rules: no number":         {"rules {\nmax width big\n}", `max width: "big" is not a whole number`},
		"rules: a bound twice":     {"rules {\nmax width 1\nmax width 2\n}", "max width is given twice"},
		"rules: twice for all":     {"rules {\nmax width 1\n}\nrules {\nmax width 2\n}", "rules for all are given twice"},
		"rules: twice for one":     {"rules ada {\nmax width 1\n}\nrules bob ada {\nmax width 2\n}", "rules ada are given twice"},
		"rules: an empty pattern":  {"rules {\ndeny model \"\"\n}", "a pattern is empty"},
		"rules: a block in it":     {"rules {\nmax width 1 {\nx\n}\n}", "takes no blocks"},
		"rate per hour":            {"tenant_limits {\nrate 5/hour\n}", `rate: "5/hour" is not of the form N/min`},
		"reserve: nothing":         {"reserve", "wrong argument count"},
		"reserve: nobody":          {"reserve gpu*", "reserve: gpu*: no tenant is named"},
		"reserve: no name":         {"reserve gpu* tenant=ada,", "reserve: gpu*: a tenant has no name"},
		"reserve: a bare name":     {"reserve gpu* ada", `"ada" is not of the form tenant=`},
		"reserve: a block":         {"reserve gpu* tenant=ada {\nx\n}", "reserve takes no block"},
		"reserve: no URL":          {"reserve ftp://x tenant=ada", "is not a URL of the form"},
		"instance only nobody":     {"instance http://a:1 {\nonly\n}", "only: http://a:1: no tenant is named"},
		"instance only twice":      {"instance http://a:1 {\nonly tenant=a\nonly tenant=b\n}", "only is given twice"},
		"instance of what":         {"instance http://a:1 b1111", "not 2 arguments"},
		"a1111 of what":            {"instance http://a:1 {\na1111 x\n}", "wrong argument count"},
		"instance twice, a1111":    {"instance http://a:1\ninstance http://a:1 a1111", "instance: http://a:1 is given twice"},
		"instance gpu nothing":     {"instance http://a:1 {\ngpu\n}", "gpu takes one argument, not 0"},
		"instance gpu twice":       {"instance http://a:1 {\ngpu a\ngpu b\n}", "gpu is given twice"},
		"instance unknown word":    {"instance http://a:1 {\ncolour red\n}", `unrecognized subdirective "colour"`},
		"tenant weights: nothing":  {"tenant_weights {\n}", "tenant_weights takes a block"},
		"tenant weights: text":     {"tenant_weights {\nada much\n}", `ada: "much" is not a number`},
		"tenant weights: zero":     {"tenant_weights {\nada 0\n}", "ada: 0 is not from 0.001 to 1000"},
		"tenant weights: twice":    {"tenant_weights {\nada 1\nada 2\n}", "ada is given twice"},
		"tenant limits: nothing":   {"tenant_limits {\n}", "tenant_limits takes a block"},
		"tenant limits: unknown":   {"tenant_limits {\ncolour 1\n}", `unrecognized subdirective "colour"`},
		"tenant limits: twice":     {"tenant_limits {\nsockets 1\nsockets 1\n}", "sockets is given twice"},
		"tenant limits: size":      {"tenant_limits {\nuserdata big\n}", `userdata: "big" is not a size`},
		"tenant limits: all twice": {"tenant_limits {\nwaiting 1\n}\ntenant_limits {\nwaiting 1\n}", "tenant_limits for all is given twice"},
		"tenant limits: ada twice": {"tenant_limits ada bob {\nwaiting 1\n}\ntenant_limits ada {\nwaiting 1\n}", "tenant_limits of ada are given twice"},
		"tenant limits: zero":      {"tenant_limits {\nwaiting 0\n}", `waiting: "0" is not a whole number above 0`},
		"tenant limits: weight":    {"tenant_limits ada {\nweight 0\n}", "weight: 0 is not from 0.001 to 1000"},
		"tenant limits: cache":     {"tenant_limits {\nresult_cache maybe\n}", `result_cache: "maybe" is not a duration`},
		"tenant limits: whose":     {"tenant_limits {\nweight 2\n}", "weight: name the tenant"},
		"inputs from nowhere":      {"inputs_from", "wrong argument count"},
		"inputs from a URL":        {"inputs_from https://a.example", `inputs_from: "https://a.example"`},
		"inputs from twice":        {"inputs_from a b\ninputs_from a", "inputs_from: a is given twice"},
		"callbacks of none":        {"callbacks", "callbacks needs allow and secret"},
		"callbacks unsigned":       {"callbacks {\nallow a.example\n}", "callbacks needs allow and secret"},
		"callbacks anywhere":       {"callbacks {\nsecret {env.COMFYHUB_TEST_SECRET}\n}", "callbacks needs allow and secret"},
		"callbacks to a URL":       {"callbacks {\nallow https://a.example\n}", `allow: "https://a.example"`},
		"callbacks inline":         {"callbacks {\nallow a.example\nsecret {env.COMFYHUB_TEST_SECRET} 0123456789abcdef\n}", "secret: must come from {env.NAME} or {file./path}"},
		"callbacks signed twice":   {"callbacks {\nsecret {env.COMFYHUB_TEST_SECRET}\nsecret {env.COMFYHUB_TEST_SECRET}\n}", "secret is given twice"},
		"callbacks typo":           {"callbacks {\nalow a.example\n}", `unrecognized subdirective "alow": did you mean allow?`},
		"input age":                {"input_age x", `input_age: "x" is not a duration`},
		"sockets":                  {"max_sockets x", `max_sockets: "x"`},
		"duration":                 {"stall_timeout 5", `stall_timeout: "5" is not a duration`},
		"negative duration":        {"job_timeout -5s", `job_timeout: "-5s" is not a duration`},
		"unrunnable":               {"unrunnable_timeout x", `unrunnable_timeout: "x"`},
		"replay":                   {"replay_window 0s", `replay_window: "0s"`},
		"size":                     {"max_body big", `max_body: "big" is not a size`},
		"zero size":                {"max_upload 0", `max_upload: "0" is not a size`},
		"huge size":                {"max_upload 17EB", `max_upload: "17EB" is not a size`},
		"switch":                   {"manager yes", `manager: "yes" is not one of off, on`},
		"passthrough":              {"passthrough write", `passthrough: "write" is not one of off, read, on`},
		"users":                    {"users many", `users: "many" is not one of single, multi`},
		"free":                     {"free yes", `free: "yes" is not one of own, all, off`},
		"plain API":                {"plain_api on", `plain_api: "on" is not one of root, v1, off`},
		"A1111 API":                {"a1111_api root", `a1111_api: "root" is not one of on, off`},
		"instance twice":           {"instance http://a:1\ninstance http://a:1", "instance: http://a:1 is given twice"},
		"instance without scheme":  {"instance localhost:8188", `instance: "localhost:8188" is not a URL of the form`},
		"instance by address":      {"instance 10.0.0.5:8188", `instance: "10.0.0.5:8188" is not a URL of the form`},
		"instance without host":    {"instance http://:8188", "names no host"},
		"instance with password":   {"instance http://u:p@a:1", "credentials do not belong"},
		"instance with query":      {"instance http://a:1/?q=1", "has a query or a fragment"},
		"gossip with argument":     {"gossip x {\nbind :1\n}", "wrong argument count"},
		"gossip twice":             {"gossip {\nbind a:1\n}\ngossip {\nbind a:1\n}", "gossip is given twice"},
		"gossip: unknown word":     {"gossip {\nport 1\n}", `unrecognized subdirective "port"`},
		"gossip: twice":            {"gossip {\nbind a:1\nbind a:2\n}", "bind is given twice"},
		"gossip: bind":             {"gossip {\nbind 7946\n}", `bind: "7946" is not of the form host:port`},
		"gossip: port":             {"gossip {\nadvertise a:http\n}", `advertise: "http" is not a port`},
		"gossip: allow nothing":    {"gossip {\nallow_direct\n}", "wrong argument count"},
		"gossip: allow a URL":      {"gossip {\nallow_direct http://a\n}", `allow_direct: "http://a" is no network, address or host name`},
		"gossip: agents from":      {"gossip {\nagents_from gpu.internal\n}", `agents_from: "gpu.internal" is no network or address`},
		"gossip: allow twice":      {"gossip {\nallow_direct a b\nallow_direct a\n}", "allow_direct: a is given twice"},
		"gossip: join nothing":     {"gossip {\njoin\n}", "wrong argument count"},
		"gossip: join":             {"gossip {\njoin a\n}", `join: "a" is not of the form host:port`},
		"gossip: join twice":       {"gossip {\njoin a:1\njoin a:1\n}", "join: a:1 is given twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := adapt(t, "{\ncomfyhub {\n"+tc.lines+"\n}\n}\n")
			require.ErrorContains(t, err, tc.want)
			require.Regexp(t, `Caddyfile:\d+`, err.Error())
		})
	}
}

func TestMistakesInASite(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"argument":        {"comfyhub /x y", "wrong argument count"},
		"unknown word":    {"comfyhub {\ncolour x\n}", `unrecognized subdirective "colour"`},
		"word elsewhere":  {"comfyhub {\nmax_queue 5\n}", `"max_queue": it belongs in the global option comfyhub`},
		"queue":           {"comfyhub {\nqueue two\n}", `queue: "two" is not one of all, one`},
		"twice":           {"comfyhub {\nevents live\nevents live\n}", "events is given twice"},
		"events":          {"comfyhub {\nevents mixed\n}", `events: "mixed" is not one of serial, live`},
		"cors: a path":    {"comfyhub {\ncors https://ui.example/\n}", "cors: \"https://ui.example/\" is neither * nor an origin"},
		"keys":            {"comfyhub {\nkeys some\n}", `keys: "some" is not one of off, optional, required`},
		"cors: a name":    {"comfyhub {\ncors ui.example\n}", "cors:"},
		"hosts: none":     {"comfyhub {\nhosts\n}", "wrong argument count"},
		"hosts: a URL":    {"comfyhub {\nhosts https://hub.example\n}", `hosts: "https://hub.example" is neither * nor a host name`},
		"hosts: a port":   {"comfyhub {\nhosts hub.example:8188\n}", "hosts:"},
		"tenant":          {"comfyhub {\ntenant\n}", "tenant takes one argument, not 0"},
		"inline secret":   {"comfyhub {\ntenant_secret 0123456789abcdef0123\n}", "must come from {env.NAME} or {file./path}"},
		"no secret":       {"comfyhub {\ntenant_secret\n}", "tenant_secret takes one argument"},
		"trust nobody":    {"comfyhub {\ntrust_tenant_from\n}", "wrong argument count"},
		"trust a name":    {"comfyhub {\ntrust_tenant_from bot\n}", `trust_tenant_from: "bot" is neither an address nor a CIDR range`},
		"trust bad range": {"comfyhub {\ntrust_tenant_from 10.0.0.0/99\n}", "trust_tenant_from"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := adapt(t, ":8188 {\n"+tc.text+"\n}\n")
			require.ErrorContains(t, err, tc.want)
			require.Regexp(t, `Caddyfile:\d+`, err.Error())
		})
	}
}

func TestGlobalOptionTwice(t *testing.T) {
	t.Parallel()
	_, err := adapt(t, "{\ncomfyhub {\n}\ncomfyhub {\n}\n}\n")
	require.ErrorContains(t, err, "given twice")
}

// The checks find mistakes that parsing a Caddyfile cannot see, and those that
// only JSON can contain.
func TestCheck(t *testing.T) {
	t.Setenv("COMFYHUB_TEST_BIND", "0.0.0.0:7946")
	t.Setenv("COMFYHUB_TEST_EMPTY", "")
	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte("a secret in a file\n"), 0o600))
	for name, tc := range map[string]struct {
		config string
		want   string // empty: valid
	}{
		"defaults":                 {`{}`, ""},
		"key off loopback":         {`{"gossip": {"bind": "0.0.0.0:7946", "key": "0123456789abcdef"}}`, ""},
		"short key off loopback":   {`{"gossip": {"bind": "0.0.0.0:7946", "key": "0123456789abcde"}}`, "gossip: key: shorter than 16 bytes"},
		"several keys":             {`{"gossip": {"bind": "0.0.0.0:7946", "key": "0123456789abcdef\n\n fedcba9876543210\n"}}`, ""},
		"one of them short":        {`{"gossip": {"bind": "0.0.0.0:7946", "key": "0123456789abcdef\nshort"}}`, "gossip: key: shorter than 16 bytes"},
		"short key on loopback":    {`{"gossip": {"bind": "127.0.0.1:7946", "key": "k"}}`, ""},
		"key from a file":          {`{"gossip": {"bind": "0.0.0.0:7946", "key": "{env.COMFYHUB_TEST_EMPTY}{file.` + key + `}"}}`, ""},
		"key from no file":         {`{"gossip": {"bind": "127.0.0.1:7946", "key": "{file./nonexistent}"}}`, "gossip: key: the file of a secret: open /nonexistent"},
		"empty secret from env":    {`{"secret": ["{env.COMFYHUB_TEST_EMPTY}"]}`, ""},
		"secret from a file":       {`{"secret": ["{file.` + key + `}"]}`, ""},
		"secret from no file":      {`{"secret": ["{file./nonexistent}"]}`, "secret: the file of a secret: open /nonexistent"},
		"short secret":             {`{"secret": ["{env.COMFYHUB_TEST_BIND}", "{file.` + key + `}"]}`, "secret: shorter than 16 bytes"},
		"secret with a brace":      {`{"secret": ["{short"]}`, "secret: shorter than 16 bytes"},
		"secret twice":             {`{"secret": ["0123456789abcdef", "0123456789abcdef"]}`, "secret: one is given twice"},
		"no key on loopback":       {`{"gossip": {"bind": "127.0.0.1:7946"}}`, ""},
		"no key on localhost":      {`{"gossip": {"bind": "localhost:7946"}}`, ""},
		"no key on IPv6 loopback":  {`{"gossip": {"bind": "[::1]:7946"}}`, ""},
		"redis replicas":           {`{"redis_replicas": 1}`, "redis_replicas: the embedded queue has no replicas"},
		"redis replicas: negative": {`{"redis": "redis://r", "redis_replicas": -1}`, "redis_replicas: must not be negative"},
		"preempt bulk":             {`{"preempt_bulk": -1}`, "preempt_bulk: must not be negative"},
		"lookahead":                {`{"lookahead": 2}`, `lookahead: "2" is not one of 0, 1`},
		"order":                    {`{"order": "x"}`, `order: "x" is not one of`},
		"operators: no name":       {`{"operators": ["{env.COMFYHUB_NOBODY_SET_THIS}"]}`, "operators: an operator has no name"},
		"primary: no name":         {`{"primary": ["{env.COMFYHUB_NOBODY_SET_THIS}"]}`, "primary: an instance or agent has no name"},
		"secrets_to: no name":      {`{"secrets_to": ["{env.COMFYHUB_NOBODY_SET_THIS}"]}`, "secrets_to: an agent or instance has no name"},
		"reserve for nobody":       {`{"reserve": [{"instance": "gpu*"}]}`, "reserve: gpu*: no tenant is named"},
		"reserve nothing":          {`{"reserve": [{"tenants": ["ada"]}]}`, "reserve: no instance is named"},
		"tenant weight":            {`{"tenant_weights": {"ada": -1}}`, "tenant_weights: ada: -1 is not from"},
		"a weight of all":          {`{"tenant_limits": {"weight": 2}}`, "tenant_limits: weight: name the tenant"},
		"a weight of one":          {`{"tenant_limits_of": {"ada": {"weight": 2000}}}`, "tenant_limits ada: weight: 2000 is not from"},
		"history of one tenant":    {`{"tenant_limits_of": {"ada": {"history": 5}}}`, "tenant_limits ada: history and history_size are the same for all tenants"},
		"negative limit of one":    {`{"tenant_limits_of": {"ada": {"running": -1}}}`, "tenant_limits ada: running: must not be negative"},
		"a band that there is not": {`{"tenant_limits": {"band": "vip"}}`, `tenant_limits: band: "vip" is not one of interactive, normal, bulk`},
		"negative tenant limit":    {`{"tenant_limits": {"inputs": -1}}`, "tenant_limits: inputs: must not be negative"},
		"empty key from env":       {`{"gossip": {"bind": "127.0.0.1:0", "key": "{env.COMFYHUB_TEST_EMPTY}"}}`, ""},
		"empty frontend from env":  {`{"frontend": "{env.COMFYHUB_TEST_EMPTY}"}`, ""},
		"no key off loopback":      {`{"gossip": {"bind": "0.0.0.0:7946"}}`, "so a key is required"},
		"no key, all addresses":    {`{"gossip": {"bind": ":7946"}}`, "so a key is required"},
		"no key, bind from env":    {`{"gossip": {"bind": "{env.COMFYHUB_TEST_BIND}"}}`, "so a key is required"},
		"empty key off loopback":   {`{"gossip": {"bind": "10.0.0.1:1", "key": "{env.COMFYHUB_TEST_EMPTY}"}}`, "so a key is required"},
		"unknown placeholder":      {`{"data": "{nonsense}"}`, "unrecognized placeholder"},
		"bad bind":                 {`{"gossip": {"bind": "7946"}}`, "gossip: bind:"},
		"bad advertise":            {`{"gossip": {"advertise": "x"}}`, "gossip: advertise:"},
		"bad inputs_from":          {`{"inputs_from": ["127.1"]}`, "inputs_from:"},
		"callbacks":                {`{"callbacks": {"allow": ["a.example"], "secret": ["{file.` + key + `}"]}}`, ""},
		"callbacks inline":         {`{"callbacks": {"allow": ["a.example"], "secret": ["0123456789abcdef"]}}`, "callbacks: secret: must come from {env.NAME} or {file./path}"},
		"callbacks short":          {`{"callbacks": {"allow": ["a.example"], "secret": ["{env.COMFYHUB_TEST_BIND}"]}}`, "callbacks: secret: shorter than 16 bytes"},
		"callbacks, no secret":     {`{"callbacks": {"allow": ["a.example"], "secret": ["{env.COMFYHUB_TEST_EMPTY}"]}}`, "callbacks: allow and secret are needed"},
		"bad callbacks":            {`{"callbacks": {"allow": ["127.1"], "secret": ["{file.` + key + `}"]}}`, "callbacks: allow:"},
		"bad agents_from":          {`{"gossip": {"agents_from": ["x"]}}`, "gossip: agents_from:"},
		"bad allow_direct":         {`{"gossip": {"allow_direct": ["x:1"]}}`, "gossip: allow_direct:"},
		"bad join":                 {`{"gossip": {"join": ["x"]}}`, "gossip: join:"},
		"bad redis":                {`{"redis": "localhost:6379"}`, "redis:"},
		"storage":                  {`{"storage": "s3://bucket?region=eu-central-1"}`, ""},
		"bad storage":              {`{"storage": "ftp://host"}`, "storage:"},
		"empty storage from env":   {`{"storage": "{env.COMFYHUB_TEST_EMPTY}"}`, ""},
		"bad free":                 {`{"free": "x"}`, "free:"},
		"bad plain API":            {`{"plain_api": "x"}`, "plain_api:"},
		"bad A1111 API":            {`{"a1111_api": "x"}`, "a1111_api:"},
		"bad instance":             {`{"instances": ["localhost"]}`, "instance:"},
		"instance twice":           {`{"instances": ["http://a:1", "http://a:1"]}`, "given twice"},
		"negative number":          {`{"max_queue": -1}`, "max_queue: must not be negative"},
		"negative duration":        {`{"job_timeout": "-1s"}`, "job_timeout: must not be negative"},
		"negative overtaking":      {`{"overtaking": "-1s"}`, "overtaking: must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			var app App
			require.NoError(t, json.Unmarshal([]byte(tc.config), &app))
			err := app.resolve(caddy.NewReplacer())
			if err == nil {
				err = app.check()
			}
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestRedisURLs(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		"", "embedded", "redis://localhost:6379", "rediss://user:password@host:6380/2", "unix:///run/redis.sock?db=1",
		"redis+sentinel://:password@one:26379,two/mymaster/0", "rediss+cluster://one:6379,two:6379", "{env.REDIS}",
	} {
		require.NoError(t, checkRedis(value), value)
	}
}

// An error must not contain the password of a URL, because errors are logged.
func TestErrorsKeepSecrets(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"http://:hunter2@host", "hunter2", "hunter2://host"} {
		err := checkRedis(value)
		require.Error(t, err, value)
		require.NotContains(t, err.Error(), "hunter2")
	}
	for _, value := range []string{"s3://key:hunter2@bucket", "ftp://key:hunter2@host/", "file://key:hunter2@host/x", "s3://a:hunter2%zz@b"} {
		err := checkStorage(value)
		require.Error(t, err, value)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func FuzzUnmarshalCaddyfile(f *testing.F) {
	f.Add("comfyhub {\nredis embedded\ngossip {\nbind :1\njoin a:1 b:2\n}\ninstance http://a\n}")
	f.Add("comfyhub {\nmax_body 1MiB\nstall_timeout 1d\nmanager on\n}")
	f.Add("comfyhub {\nhistory {\nentries 5\nage 1d\nsize 1GB\n}\ninput_age 1d\nstorage s3://b?endpoint=http://h\n}")
	f.Add("comfyhub {\ntenant {x}\ntrust_tenant_from private_ranges\nevents live\n}")
	f.Fuzz(func(t *testing.T, text string) {
		app := new(App)
		if err := app.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)); err == nil {
			// What the Caddyfile accepts must survive as JSON and contain
			// nothing that the checks of a JSON configuration refuse.
			require.NoError(t, json.Unmarshal(caddyconfig.JSON(app, nil), new(App)))
			require.NoError(t, checkWords(app))
		}
		handler := new(Handler)
		if err := handler.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)); err == nil {
			require.NoError(t, handler.Validate())
		}
	})
}
