package shell

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The statuses of a job in the plain job API.
const (
	StatusQueued     = "queued"
	StatusProcessing = "processing"
	StatusCompleted  = "completed"
	StatusFailed     = "failed"
	StatusCancelled  = "cancelled"
)

// Job is a job as the plain job API shows it. Moments are Unix seconds, 0 if they have not
// come.
type Job struct {
	ID       string   `json:"id"`
	Status   string   `json:"status"`
	Position *int     `json:"position"`
	ETA      *float64 `json:"eta"` // in seconds
	Progress float64  `json:"progress"`
	Error    string   `json:"error"`
	Created  float64  `json:"created_at"`
	Started  float64  `json:"started_at"`
	Ended    float64  `json:"completed_at"`
	Result   *struct {
		Files []File `json:"files"`
	} `json:"result"`

	// Raw is the answer itself.
	Raw json.RawMessage `json:"-"`
}

// File is a file that a job has made.
type File struct {
	Filename  string `json:"filename"`
	Subfolder string `json:"subfolder"`
	Type      string `json:"type"`
	URL       string `json:"url"`
}

// readJob reads an answer of the hub.
func readJob(answer []byte) (Job, error) {
	var j Job
	if err := json.Unmarshal(answer, &j); err != nil {
		return j, fmt.Errorf("the hub's answer is no job: %w", err)
	}
	if j.ID == "" || j.Status == "" {
		return j, fmt.Errorf("the hub's answer is no job: %.200s", printable(string(answer)))
	}
	j.Raw = answer
	return j, nil
}

// Over reports whether a job has ended.
func (j Job) Over() bool { return j.Status != StatusQueued && j.Status != StatusProcessing }

// Files are the files of a job that are worth storing: the outputs, or the previews of a
// job that has nothing else.
func (j Job) Files() []File {
	if j.Result == nil {
		return nil
	}
	var kept []File
	for _, f := range j.Result.Files {
		if f.Type == "output" {
			kept = append(kept, f)
		}
	}
	if kept == nil {
		return j.Result.Files
	}
	return kept
}

// String is a job in one line.
func (j Job) String() string {
	text := printable(j.Status)
	switch j.Status {
	case StatusQueued:
		switch {
		case j.Position == nil:
		case *j.Position == 0:
			text += ", next"
		default:
			text += ", " + strconv.Itoa(*j.Position) + " before it"
		}
	case StatusProcessing:
		text += " " + strconv.Itoa(int(100*min(max(j.Progress, 0), 1))) + "%"
	case StatusCompleted:
		if j.Ended > j.Started && j.Started > 0 {
			text += " in " + seconds(j.Ended-j.Started)
		}
	case StatusFailed:
		if j.Error != "" {
			text += ": " + printable(j.Error)
		}
	}
	if !j.Over() && j.ETA != nil {
		text += ", done in about " + seconds(*j.ETA)
	}
	return text
}

// seconds is a time for people.
func seconds(n float64) string {
	d := time.Duration(min(max(n, 0), 1e8) * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// printable is a text from elsewhere without anything by which it could do more to a
// terminal than be read.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, text)
}
