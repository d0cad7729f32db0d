package ops

import (
	"encoding/csv"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// usageDays is how many days GET /hub/usage shows by default, today included.
const usageDays = 31

// getUsage answers GET /hub/usage?from=2026-01-01&to=2026-01-31&format=csv: what the caller
// has used by day, or for an operator everybody, or the tenant that is named.
func (o *room) getUsage(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	q := api.QueryOf(r)
	from, to, err := usageSpan(q, time.Now().UTC())
	asCSV := q.Get("format") == "csv"
	if format := q.Get("format"); err == nil && format != "" && format != "csv" && format != "json" {
		err = errors.New("format: want csv or json")
	}
	if err != nil {
		api.WriteErrorText(w, http.StatusBadRequest, err.Error())
		return
	}
	rows, err := o.hub().Figures.Usage(r.Context(), of(r, a), !q.Has("tenant"), from, to)
	switch {
	case errors.Is(err, view.ErrUsageDays):
		api.WriteErrorText(w, http.StatusBadRequest, "from and to: want days in order, a year at most")
	case errors.Is(err, view.ErrUsageMuch):
		api.WriteErrorText(w, http.StatusBadRequest, "That is too much for one answer: ask for fewer days, or for a tenant")
	case err != nil:
		o.Fail(w, r, err)
	case asCSV:
		writeUsageCSV(w, rows)
	default:
		api.WriteJSON(w, http.StatusOK, pyjson.Strict(pyjson.Marshal(usageJSON(from, to, rows))))
	}
}

// usageSpan reads the days from and to; without them it is the last month.
func usageSpan(q url.Values, now time.Time) (from, to time.Time, err error) {
	to = now
	if text := q.Get("to"); text != "" {
		if to, err = time.Parse(time.DateOnly, text); err != nil {
			return from, to, errors.New("to: want a day such as 2026-01-31")
		}
	}
	from = to.AddDate(0, 0, 1-usageDays)
	if text := q.Get("from"); text != "" {
		if from, err = time.Parse(time.DateOnly, text); err != nil {
			return from, to, errors.New("from: want a day such as 2026-01-01")
		}
	}
	return from, to, nil
}

func usageJSON(from, to time.Time, rows []view.UsageDay) *pyjson.Object {
	list := make(pyjson.Array, len(rows))
	for n, row := range rows {
		list[n] = pyjson.NewObject(
			pyjson.Member{Key: "day", Value: pyjson.String(row.Date.Format(time.DateOnly))},
			pyjson.Member{Key: "tenant", Value: pyjson.String(row.Tenant)},
			pyjson.Member{Key: "done", Value: pyjson.Int(row.Done)},
			pyjson.Member{Key: "failed", Value: pyjson.Int(row.Failed)},
			pyjson.Member{Key: "cancelled", Value: pyjson.Int(row.Cancelled)},
			pyjson.Member{Key: "gpu_seconds", Value: pyjson.Float(row.Time.Seconds())},
			pyjson.Member{Key: "output_bytes", Value: pyjson.Int(row.Bytes)},
			pyjson.Member{Key: "overflow_cost", Value: pyjson.Float(row.Cost)},
		)
	}
	return pyjson.NewObject(
		pyjson.Member{Key: "from", Value: pyjson.String(from.Format(time.DateOnly))},
		pyjson.Member{Key: "to", Value: pyjson.String(to.Format(time.DateOnly))},
		pyjson.Member{Key: "usage", Value: list},
	)
}

// writeUsageCSV answers with a table for a spreadsheet.
func writeUsageCSV(w http.ResponseWriter, rows []view.UsageDay) {
	h := w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="usage.csv"`)
	out := csv.NewWriter(w)
	_ = out.Write([]string{"day", "tenant", "done", "failed", "cancelled", "gpu_seconds", "output_bytes", "overflow_cost"})
	for _, row := range rows {
		_ = out.Write([]string{ // the client may have gone
			row.Date.Format(time.DateOnly), noFormula(row.Tenant), number(row.Done), number(row.Failed), number(row.Cancelled),
			strconv.FormatFloat(row.Time.Seconds(), 'f', 3, 64), number(row.Bytes),
			strconv.FormatFloat(row.Cost, 'f', 6, 64),
		})
	}
	out.Flush()
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// noFormula keeps a spreadsheet from running a name as a formula.
func noFormula(name string) string {
	if name != "" && strings.ContainsRune("=+-@\t\r", rune(name[0])) {
		return "'" + name
	}
	return name
}
