/* Sums and exchanges of an MPI program, each verified. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { NUMBERS = 16 * 1024 * 1024 / sizeof(double), MOST_BYTES = 1 << 20 };

/* Sums 16 MiB of doubles over all ranks. Returns how many sums are wrong. */
static int wrong_sums(int rank, int size, int round)
{
	double *own = malloc(NUMBERS * sizeof *own), *sums = malloc(NUMBERS * sizeof *sums);
	int wrong = 0;

	for (int i = 0; i < NUMBERS; i++)
		own[i] = rank * 1000.0 + i % 977 + round;
	MPI_Allreduce(own, sums, NUMBERS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < NUMBERS; i++)
		wrong += sums[i] != 1000.0 * size * (size - 1) / 2 + size * (double)(i % 977 + round);
	free(own);
	free(sums);
	return wrong;
}

/* Sends bytes to the next rank. Returns how many of those of the rank before are wrong. */
static int wrong_bytes(int rank, int size, int length)
{
	int next = (rank + 1) % size, before = (rank + size - 1) % size, wrong = 0;
	char *own = malloc(length), *other = malloc(length);

	for (int i = 0; i < length; i++)
		own[i] = (char)(i * 7 + rank);
	MPI_Sendrecv(own, length, MPI_CHAR, next, 1, other, length, MPI_CHAR, before, 1, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	for (int i = 0; i < length; i++)
		wrong += other[i] != (char)(i * 7 + before);
	free(own);
	free(other);
	return wrong;
}

int main(int argc, char **argv)
{
	int rank, size, wrong = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int round = 0; round < 2; round++)
		wrong += wrong_sums(rank, size, round);
	for (int length = 1; length <= MOST_BYTES; length *= 4)
		wrong += wrong_bytes(rank, size, length);
	printf("rank %d of %d: %d values are wrong\n", rank, size, wrong);
	MPI_Finalize();
	return wrong != 0;
}
