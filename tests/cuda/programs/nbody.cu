// All pairs of bodies, float4 tiles in dynamic shared memory, and device functions.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector_types.h>

#define SOFTENING 1e-9f

typedef struct {
    float4 *pos, *vel;
} BodySystem;

__device__ float3 bodyBodyInteraction(float4 bi, float4 bj, float3 ai)
{
    float3 r = make_float3(bj.x - bi.x, bj.y - bi.y, bj.z - bi.z);
    float distSqr = r.x * r.x + r.y * r.y + r.z * r.z + SOFTENING;
    float invDist = rsqrtf(distSqr);
    float invDist3 = invDist * invDist * invDist * bj.w;
    ai.x += r.x * invDist3;
    ai.y += r.y * invDist3;
    ai.z += r.z * invDist3;
    return ai;
}

__global__ void bodyForce(BodySystem system, float dt, int n)
{
    extern __shared__ float4 shPosition[];
    int gtid = blockIdx.x * blockDim.x + threadIdx.x;
    float4 myPosition = system.pos[gtid];
    float3 acc = {0.0f, 0.0f, 0.0f};
    for (int tile = 0; tile < gridDim.x; tile++) {
        shPosition[threadIdx.x] = system.pos[tile * blockDim.x + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < blockDim.x; j++)
            acc = bodyBodyInteraction(myPosition, shPosition[j], acc);
        __syncthreads();
    }
    float4 v = system.vel[gtid];
    v.x += dt * acc.x;
    v.y += dt * acc.y;
    v.z += dt * acc.z;
    system.vel[gtid] = v;
}

__global__ void integrate(BodySystem s, float dt)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s.pos[i].x += s.vel[i].x * dt;
    s.pos[i].y += s.vel[i].y * dt;
    s.pos[i].z += s.vel[i].z * dt;
}

int main(const int argc, const char **argv)
{
    int nBodies = 256;
    if (argc > 1) nBodies = atoi(argv[1]);
    const float dt = 0.01f;
    const int nIters = 3, block = 64;
    size_t bytes = nBodies * sizeof(float4);

    float4 *pos = (float4 *)malloc(bytes), *vel = (float4 *)malloc(bytes);
    for (int i = 0; i < nBodies; i++) {
        pos[i] = make_float4(rand() / (float)RAND_MAX, rand() / (float)RAND_MAX, rand() / (float)RAND_MAX, 1.0f / nBodies);
        vel[i] = make_float4(0, 0, 0, 0);
    }
    BodySystem d;
    cudaMalloc((void **)&d.pos, bytes);
    cudaMalloc((void **)&d.vel, bytes);
    cudaMemcpy(d.pos, pos, bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d.vel, vel, bytes, cudaMemcpyHostToDevice);
    for (int iter = 0; iter < nIters; iter++) {
        bodyForce<<<nBodies / block, block, block * sizeof(float4)>>>(d, dt, nBodies);
        integrate<<<nBodies / block, block>>>(d, dt);
    }
    float4 *result = (float4 *)malloc(bytes);
    cudaMemcpy(result, d.pos, bytes, cudaMemcpyDeviceToHost);

    for (int iter = 0; iter < nIters; iter++) {
        for (int i = 0; i < nBodies; i++) {
            double ax = 0, ay = 0, az = 0;
            for (int j = 0; j < nBodies; j++) {
                double dx = pos[j].x - pos[i].x, dy = pos[j].y - pos[i].y, dz = pos[j].z - pos[i].z;
                double inv = 1.0 / sqrt(dx * dx + dy * dy + dz * dz + SOFTENING);
                double inv3 = inv * inv * inv * pos[j].w;
                ax += dx * inv3;
                ay += dy * inv3;
                az += dz * inv3;
            }
            vel[i].x += dt * ax;
            vel[i].y += dt * ay;
            vel[i].z += dt * az;
        }
        for (int i = 0; i < nBodies; i++) {
            pos[i].x += vel[i].x * dt;
            pos[i].y += vel[i].y * dt;
            pos[i].z += vel[i].z * dt;
        }
    }
    double worst = 0;
    for (int i = 0; i < nBodies; i++) worst = fmax(worst, fabs(pos[i].x - result[i].x) + fabs(pos[i].z - result[i].z));
    printf("%d bodies, worst difference %.2e\n%s\n", nBodies, worst, worst < 1e-3 ? "PASS" : "FAIL");
    cudaFree(d.pos);
    cudaFree(d.vel);
    free(pos);
    free(vel);
    free(result);
}
