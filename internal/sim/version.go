package sim

import (
	"fmt"
	"strconv"
	"strings"
)

// version is a release number of ComfyUI.
type version [3]int

// parseVersion parses "0.3.64", optionally with a leading "v" or a suffix of git
// describe.
func parseVersion(s string) (version, error) {
	var v version
	text, _, _ := strings.Cut(strings.TrimPrefix(s, "v"), "-")
	parts := strings.Split(text, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return v, fmt.Errorf("sim: version %q is not of the form 0.3.64", s)
	}
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return v, fmt.Errorf("sim: version %q is not of the form 0.3.64", s)
		}
		v[i] = n
	}
	return v, nil
}

func (v version) since(major, minor, patch int) bool {
	for i, n := range [3]int{major, minor, patch} {
		if v[i] != n {
			return v[i] > n
		}
	}
	return true
}

// features describes the simulated version. Each field is a change of behaviour
// that a client can see.
type features struct {
	clientPromptID     bool // a prompt_id sent by the client is used
	featureFlags       bool // feature_flags messages, /features
	progressState      bool // progress_state messages and binary type 4
	stripsHistory      bool // secrets are removed from the history
	partialExecution   bool // partial_execution_targets
	targetedInterrupt  bool // /interrupt looks at prompt_id
	historyOffset      bool // /history?offset=
	subgraphs          bool // /global_subgraphs
	visitedOutputs     bool // history outputs are those of nodes visited in the run
	cachedOutputsFixed bool // cached outputs without client_id are in the history
	hidesSecrets       bool // secrets are not in GET /queue
	createTime         bool // extra_data.create_time
	csp                bool // Content-Security-Policy with --disable-api-nodes
	corsPatch          bool // PATCH in Access-Control-Allow-Methods
	matchTypes         bool // COMFY_MATCHTYPE_V3 and dynamic inputs
	previewMethod      bool // extra_data.preview_method
	hidesDotFiles      bool // /internal/files leaves out hidden files
	jobs               bool // GET /api/jobs
	validatesCombo     bool // options of ["COMBO", {…}] are checked, "*" matches all
	cancelledStatus    bool // job status cancelled
	newCatalogue       bool // the node listing of 0.33.0 rather than 0.3.64
	missingNodeType    bool // error type missing_node_type
	nodeReplacements   bool // /node_replacements and the rewriting of old classes
	assetRoutes        bool // /api/assets, 503 unless enabled
	noStore            bool // Cache-Control no-store instead of no-cache
	fetchSite          bool // Sec-Fetch-Site: cross-site is refused
	dependencyCycle    bool // error type dependency_cycle
	annotatedFiles     bool // /internal/files names carry " [output]"
	integerTimes       bool // userdata times are integer milliseconds
	uuidPromptID       bool // a prompt_id must be a UUID
	usageSource        bool // header Comfy-Usage-Source
	jobsCancel         bool // POST /api/jobs/cancel
	forcedDownload     bool // active content is sent as attachment, nosniff
	contained          bool // inputs cannot leave their folder
	modelExtensions    bool // extensions in /experiment/models
	svgByFetchDest     bool // svg stays an image for Sec-Fetch-Dest: image
	previewableCount   bool // previewable_outputs_count in jobs
	cliFlags           bool // --feature-flag
	assets             bool // on by default: ids in outputs, assets in answers to uploads
	mediaMetadata      bool // kind and size of pictures and videos in outputs
	activity           bool // progress_state says what a running node spends time on
	loops              bool // StartLoop and EndLoop
	platformName       bool // system_stats.os is "linux", not "posix"
}

func (v version) features() features {
	return features{
		clientPromptID:     v.since(0, 3, 45),
		featureFlags:       v.since(0, 3, 45),
		progressState:      v.since(0, 3, 45),
		stripsHistory:      v.since(0, 3, 45),
		partialExecution:   v.since(0, 3, 48),
		targetedInterrupt:  v.since(0, 3, 57),
		historyOffset:      v.since(0, 3, 60),
		subgraphs:          v.since(0, 3, 67),
		visitedOutputs:     v.since(0, 3, 67),
		cachedOutputsFixed: v.since(0, 28, 0),
		hidesSecrets:       v.since(0, 3, 68),
		createTime:         v.since(0, 3, 69),
		csp:                v.since(0, 3, 72),
		corsPatch:          v.since(0, 4, 0),
		matchTypes:         v.since(0, 4, 0),
		previewMethod:      v.since(0, 5, 0),
		hidesDotFiles:      v.since(0, 5, 0),
		jobs:               v.since(0, 6, 0),
		validatesCombo:     v.since(0, 8, 0),
		cancelledStatus:    v.since(0, 9, 0),
		newCatalogue:       v.since(0, 8, 0),
		missingNodeType:    v.since(0, 12, 0),
		nodeReplacements:   v.since(0, 14, 0),
		assetRoutes:        v.since(0, 17, 0),
		noStore:            v.since(0, 18, 0),
		fetchSite:          v.since(0, 19, 0),
		dependencyCycle:    v.since(0, 20, 0),
		annotatedFiles:     v.since(0, 20, 0),
		integerTimes:       v.since(0, 21, 0),
		uuidPromptID:       v.since(0, 25, 0),
		usageSource:        v.since(0, 25, 0),
		jobsCancel:         v.since(0, 26, 0),
		forcedDownload:     v.since(0, 28, 0),
		contained:          v.since(0, 28, 0),
		modelExtensions:    v.since(0, 28, 0),
		svgByFetchDest:     v.since(0, 30, 0),
		previewableCount:   v.since(0, 32, 0),
		cliFlags:           v.since(0, 20, 0),
		assets:             v.since(0, 38, 0),
		mediaMetadata:      v.since(0, 38, 0),
		activity:           v.since(0, 38, 0),
		loops:              v.since(0, 38, 0),
		platformName:       v.since(0, 12, 0),
	}
}
