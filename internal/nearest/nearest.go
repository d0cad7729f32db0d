// Package nearest guesses which known word somebody has misspelt.
package nearest

import "strings"

// maxWord bounds the words that are compared, in bytes: the cost grows with the square.
const maxWord = 64

// Of returns the known word that is most like another one, or "" if none is much like it. Of several it
// returns the first. Upper and lower case are alike.
func Of(word string, known []string) string {
	best, least := "", max(2, len(word)/3)+1
	for _, k := range known {
		if len(k) > maxWord || len(word) > maxWord {
			continue
		}
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

// distance is how many bytes must be added, left out, changed, or exchanged with the next one.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
